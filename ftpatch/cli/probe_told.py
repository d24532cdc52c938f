# SPDX-License-Identifier: MIT
"""``ftpatch probe`` lists probes: those that it inserted, and those that a program has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ftpatch.api.boot_probing import probes_in
from ftpatch.api.probe_ways import ProbeWay
from ftpatch.api.probing import PlacedProbe, Probed, kernel_lines
from ftpatch.cli.console import count, json_line, lines
from ftpatch.cli.options import require_first
from ftpatch.cli.outcome import all_told, cleared_line, dropped_line
from ftpatch.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from ftpatch.probe.kernel_events import Form

__all__ = ["place_line", "print_lines", "tell_held", "tell_inserted"]

TRAP = "trap"
"""The way whose probes handle the program's own use of a signal."""
NAMED = 9
"""Such probes that are named one by one."""


def tell_held(program: Path, *, as_json: bool) -> None:
    """Print the probes that a program has. Raises UsageError if it has none."""
    from ftpatch.image import open_image

    image = open_image(program)
    held = probes_in(image)
    if held is None:
        if image.is_module:
            hint = "use --print-events and the running kernel"
            raise UsageError(program, "no probes in a module's file", hint)
        what, such = ("kernel", "do_mkdirat") if image.is_kernel else ("program", "main")
        hint = f"specify a probe, such as 'p {such}'"
        raise UsageError(program, f"no probes in this {what}", hint)
    for one in held:
        if as_json:
            json_line({"definition": one.definition, "ip": hex(one.ip), "way": one.way or None})
        else:
            lines([one.definition])


def tell_inserted(probed: Probed, *, as_json: bool, quiet: bool) -> None:
    """Print each probe that was inserted, and what became of the program."""
    if as_json:
        for one in probed.probes:
            json_line(_row(one, probed))
    elif not quiet:
        _said(probed)


def place_line(one: PlacedProbe | ProbeWay, width: int) -> str:
    """The line of a place; its name takes ``width`` characters."""
    where = f"{one.library}:{one.address:#x}" if one.library else f"{one.address:#x}"
    why = f" ({one.reason})" if one.reason else ""
    return f"{one.name:{width}}  {one.way:4}  {where}{why}"


def _row(one: PlacedProbe, probed: Probed) -> dict[str, Any]:
    row: dict[str, Any] = one._asdict() | {"address": hex(one.address)}
    if one.way == TRAP:
        row["handled"] = list(probed.handled)
    return row | ({"cleared": probed.cleared} if probed.cleared else {})


def _said(probed: Probed) -> None:
    width = max((len(one.name) for one in probed.probes), default=0)
    lines([] if probed.probes else ["no probes are left"])
    for one in probed.probes:
        lines([place_line(one, width)])
    traps = [one.name for one in probed.probes if one.way == TRAP]
    if traps and probed.handled:
        names = ", ".join(probed.handled)
        those = ", ".join(traps) if len(traps) <= NAMED else count(len(traps), "trap")
        lines([f"{those}: handles the program's own use of {probed.signal}: {names}"])
    lines([cleared_line(probed.cleared)] if probed.cleared else [])
    lines([dropped_line(probed.dropped, probed.unrecorded)] if probed.dropped else [])
    lines(f"wrote {copy}" for copy in probed.copies)
    lines([f"wrote {probed.written}" if probed.written else "dry run: nothing was written"])


def print_lines(image: Path, probes: list[str], form: Form, keep_going: bool) -> None:
    """Print the probes for a kernel; nothing if one is refused, unless all others are wanted.
    Raises UsageError."""
    from ftpatch.image import open_image

    if not probes:
        raise UsageError(image, "no probes", "specify a probe, such as 'p do_sys_openat2'")
    require_first(image, probes, "probes")
    refused = Refused()
    with all_told(refused):
        found = kernel_lines(open_image(image), probes, form, refused)
        if refused.errors and not (keep_going and found):
            raise refused.errors.pop()
    lines(found)
    if refused.errors:
        raise typer.Exit(Exit.FOUND)
