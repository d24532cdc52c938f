"""``ftpatch probe``: return probes and probes of ftrace's kprobe_events, in a program on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftpatch.cli.console import json_line, lines, wait_for
from ftpatch.cli.options import (
    AllowSetuid,
    Depth,
    DryRun,
    Force,
    Format,
    InPlace,
    Json,
    Output,
    Quiet,
    bytes_of,
    wants_json,
)
from ftpatch.cli.update import output_path
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.image import Image
    from ftpatch.plan.probed import Handler, Placed, Probed

__all__ = ["NAME", "command"]

NAME = "probe"

Program = Annotated[
    Path, typer.Argument(metavar="PROG", readable=False, help="The program to be probed.")
]
Probes = Annotated[
    list[str],
    typer.Argument(
        metavar="PROBE...",
        help="'p[:NAME] FUNC[+OFFSET] [[NAME=]FETCH[:TYPE]]...' or 'r[MAXACTIVE][:NAME] FUNC ...', "
        "as in ftrace's kprobe_events. FETCH: $argN, $retval, %REG, $stackN, @SYMBOL, $comm, "
        "+OFFSET(FETCH).",
    ),
]


def command(
    program: Program,
    probes: Probes,
    handler: Annotated[
        str | None,
        typer.Option(
            "--handler",
            metavar="STUB:FUNC",
            help="A function of a stub of your own, called with the instance and the registers.",
        ),
    ] = None,
    optimize: Annotated[
        bool,
        typer.Option(
            "--optimize/--no-optimize",
            help="A jump in place of a breakpoint, where one is safe. Default: on.",
        ),
    ] = True,
    depth: Depth = 1024,
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="Of the trace file. Default: 64M."),
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
    """Lay probes into a program: what a function was called with, and what it returned."""
    as_json = wants_json(json, format_)
    target = output_path(program, output, in_place)
    room = bytes_of(size)
    from ftpatch.copy import Copy

    with Copy(
        program,
        None if dry_run else target,
        force=force,
        allow_setuid=allow_setuid,
        in_place=in_place,
    ) as copy:
        from ftpatch.image import open_image
        from ftpatch.plan.probed import Probing, plan_probed
        from ftpatch.update import lay_in

        image = open_image(program)
        definitions = _parsed(image, probes)
        probed = plan_probed(image, Probing(definitions, optimize, _handler(handler), depth, room))
        if not dry_run:
            wait_for(copy)
            lay_in(copy, image, probed.plan)
    written = None if dry_run else target
    if as_json:
        for one in probed.placed:
            json_line(_row(one, probed.risks))
    elif not quiet:
        _said(probed, written)


def _parsed(image: Image, probes: list[str]) -> Any:  # noqa: ANN401
    from ftpatch.arch import arch_of
    from ftpatch.arch.registers import REGISTERS
    from ftpatch.probe import parse_probes

    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    registers = REGISTERS.get(arch.name) if arch else None
    if registers is None:
        known = ", ".join(REGISTERS)
        raise UsageError(image.path, "there are no probes for its architecture", f"only {known}")
    return parse_probes(probes, registers.names, arguments=len(registers.arguments))


def _handler(text: str | None) -> Handler | None:
    """``STUB:FUNC``."""
    from ftpatch.plan.probed import Handler

    if text is None:
        return None
    stub, _, name = text.rpartition(":")
    if not stub or not name:
        raise UsageError(None, f"--handler {text}: it names no function", "write STUB.elf:FUNC")
    return Handler(Path(stub), name)


def _row(one: Placed, risks: str) -> dict[str, Any]:
    from ftpatch.probe import definition_text

    row = {
        "name": one.definition.name,
        "definition": definition_text(one.definition),
        "address": hex(one.address),
        "way": one.way.value,
        "reason": one.why,
    }
    return row | {"risk": risks} if one.way.value == "trap" else row


def _said(probed: Probed, written: Path | None) -> None:
    placed = probed.placed
    width = max(len(one.definition.name) for one in placed)
    for one in placed:
        why = f" ({one.why})" if one.why else ""
        lines([f"{one.definition.name:{width}}  {one.way.value:4}  {one.address:#x}{why}"])
    traps = ", ".join(one.definition.name for one in placed if one.way.value == "trap")
    if traps:
        lines([f"{traps}: the program dies of it if SIGILL is blocked by {probed.risks}"])
    lines([f"wrote {written}" if written else "dry run: nothing was written"])
