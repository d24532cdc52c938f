# SPDX-License-Identifier: MIT
"""``ftpatch probe``: ftrace's kprobe_events for a program on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftpatch.api.writing import output_path
from ftpatch.cli.completion import images
from ftpatch.cli.console import error_line, json_line, lines, tell_links, wait_for
from ftpatch.cli.options import (
    AllowSetuid,
    DryRun,
    Force,
    Format,
    InPlace,
    Json,
    MaxStack,
    Output,
    Quiet,
    bytes_of,
    wants_json,
)
from ftpatch.cli.outcome import cleared_line
from ftpatch.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftpatch.image import Image
    from ftpatch.probe import Definition
    from ftpatch.probe.plan import Handler, Placed, Probed

__all__ = ["command"]


Program = Annotated[
    Path,
    typer.Argument(metavar="PROG", readable=False, autocompletion=images, help="Program to probe."),
]
Probes = Annotated[
    list[str],
    typer.Argument(
        metavar="PROBE",
        help="Probes in the forms above, as in kprobe_events [default: list those inserted].",
    ),
]


def command(
    program: Program,
    probes: Probes = [],  # noqa: B006 - typer copies it
    handler: Annotated[
        str | None,
        typer.Option(
            "--handler",
            metavar="STUB:FUNC",
            help="Function in your own stub, called with the instance and the registers.",
        ),
    ] = None,
    optimize: Annotated[
        bool,
        typer.Option(
            "--optimize/--no-optimize",
            help="Use a jump instead of a breakpoint where that is safe.",
        ),
    ] = True,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Insert all probes that can be inserted; exit 1 if any cannot."
        ),
    ] = False,
    max_stack: MaxStack = 1024,
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="Trace file size."),
    ] = "64M",
    output: Output = None,
    in_place: InPlace = False,
    force: Force = False,
    allow_setuid: AllowSetuid = False,
    dry_run: DryRun = False,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
) -> None:
    """Insert probes that record arguments and return values.

    \b
    p[:NAME] FUNC[+OFFSET] [[NAME=]FETCH[:TYPE]]...   on entry, or at OFFSET
    r[MAXACTIVE][:NAME] FUNC [[NAME=]FETCH[:TYPE]]... on return
    FUNC    symbol, also an imported one; C++, Rust or D source name, without
            parameters if unambiguous; 0xADDRESS
    FETCH   $argN $retval %REG $stack $stackN @SYMBOL[+OFF] $comm \\NUMBER
            +OFFSET(FETCH): memory at that address
    TYPE    u8 u16 u32 u64, s8 ... s64, x8 ... x64 (the default), string, symbol

    \b
    Examples:
    ftpatch probe ./shop 'p sell n=$arg1:s32' 'r sell $retval:s32' -o ./shop.p
    ftpatch probe /bin/cat 'p:o open path=+0($arg1):string' -o ./cat.p
    FTPATCH_TRACE=shop.trace ./shop.p; ftpatch report shop.trace
    ftpatch probe ./shop.p                            lists its probes

    If any probe cannot be inserted, each such probe is reported and nothing is written, unless
    --keep-going is given.
    """
    as_json = wants_json(json, format_)
    if not probes:
        if output is not None or in_place or handler is not None:
            raise UsageError(program, "no probes", "specify a probe, such as 'p main'")
        _tell(program, as_json)
        return
    from ftpatch.image import open_image

    room, image = bytes_of(size), open_image(program)
    refused = Refused()
    definitions, named = _parsed(image, probes, refused), _handler(handler)
    target = output_path(program, output, in_place)
    from ftpatch.io.output import Copy

    with Copy(
        program,
        None if dry_run else target,
        force=force,
        allow_setuid=allow_setuid,
        in_place=in_place,
    ) as copy:
        from ftpatch.probe.plan import Probing, plan_probed
        from ftpatch.update.update import lay_in

        with _all_told(refused):
            probing = Probing(
                definitions=definitions,
                optimize=optimize,
                handler=named,
                depth=max_stack,
                size=room,
            )
            probed = plan_probed(image, probing, refused)
            if refused.errors and not keep_going:
                raise refused.errors.pop()
        if not dry_run:
            wait_for(copy)
            lay_in(copy, image, probed.plan)
        from ftpatch.update.update import cleared_name

        cleared = cleared_name(image, probed.plan.changes)
    tell_links(copy)
    written = None if dry_run else target
    if as_json:
        for one in probed.placed:
            json_line(_row(one, probed.asks) | ({"cleared": cleared} if cleared else {}))
    elif not quiet:
        _said(probed, written, cleared)
    if refused.errors:
        raise typer.Exit(Exit.FOUND)


@contextmanager
def _all_told(refused: Refused) -> Iterator[None]:
    """Tell all that was refused, but for the error that ends the command: that comes last."""
    try:
        yield
    finally:
        for error in refused.errors:
            error_line(str(error))


def _tell(program: Path, as_json: bool) -> None:
    """The probes that a program has."""
    from ftpatch.image import open_image
    from ftpatch.inject.probe_methods import METHODS
    from ftpatch.probe.read_back import injected_probes

    held = injected_probes(open_image(program))
    if held is None:
        raise UsageError(program, "no probes in this program", "specify a probe, such as 'p main'")
    ways = {method.number: method.name for method in METHODS}
    for one in held:
        if as_json:
            row = {"definition": one.text, "ip": hex(one.ip), "way": ways.get(one.way)}
            json_line(row)
        else:
            lines([one.text])


def _parsed(image: Image, probes: list[str], refused: Refused) -> Sequence[Definition]:
    from ftpatch.arch import arch_of, supporting, supports
    from ftpatch.arch.registers import registers_of
    from ftpatch.probe import parse_probes

    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    if arch is None or not supports(arch.name, "registers"):
        known = ", ".join(supporting("registers"))
        raise UsageError(
            image.path, "probes are not supported on its architecture", f"supported: {known}"
        )
    registers = registers_of(arch.name)
    return parse_probes(probes, registers.names, refused, arguments=len(registers.arguments))


def _handler(text: str | None) -> Handler | None:
    """``STUB:FUNC``."""
    from ftpatch.probe.plan import Handler

    if text is None:
        return None
    stub, _, name = text.rpartition(":")
    if not stub or not name:
        raise UsageError(None, f"--handler {text}: no function", "use STUB.elf:FUNC")
    return Handler(stub=Path(stub), name=name)


def _row(one: Placed, asks: Sequence[str]) -> dict[str, Any]:
    from ftpatch.probe import definition_text

    row = {
        "name": one.definition.name,
        "definition": definition_text(one.definition),
        "address": hex(one.address),
        "way": one.method.name,
        "reason": one.why,
    }
    return row | {"handled": list(asks)} if one.method.traps else row


def _said(probed: Probed, written: Path | None, cleared: str) -> None:
    placed = probed.placed
    width = max(len(one.definition.name) for one in placed)
    for one in placed:
        why = f" ({one.why})" if one.why else ""
        lines([f"{one.definition.name:{width}}  {one.method.name:4}  {one.address:#x}{why}"])
    traps = ", ".join(one.definition.name for one in placed if one.method.traps)
    if traps and probed.asks:
        lines([f"{traps}: handles the program's own use of SIGILL: {', '.join(probed.asks)}"])
    lines([cleared_line(cleared)] if cleared else [])
    lines([f"wrote {written}" if written else "dry run: nothing was written"])
