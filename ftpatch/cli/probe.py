"""``ftpatch probe``: return probes and probes of ftrace's kprobe_events, in a program on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftpatch.cli.console import error_line, json_line, lines, tell_links, wait_for
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
    output_path,
    wants_json,
)
from ftpatch.cli.outcome import cleared_line, cleared_name
from ftpatch.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftpatch.image import Image
    from ftpatch.probe import Definition
    from ftpatch.probe.plan import Handler, Placed, Probed

__all__ = ["NAME", "command"]

NAME = "probe"

Program = Annotated[Path, typer.Argument(metavar="PROG", readable=False, help="The program.")]
Probes = Annotated[
    list[str],
    typer.Argument(
        metavar="PROBE",
        help="One of the forms above, as in ftrace's kprobe_events. Without any: show them.",
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
            help="A function of a stub of your own, called with the instance and the registers.",
        ),
    ] = None,
    optimize: Annotated[
        bool,
        typer.Option(
            "--optimize/--no-optimize",
            help="Use a jump instead of a breakpoint where it is safe.",
        ),
    ] = True,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Lay the probes that can be laid; exit 1 if some cannot."
        ),
    ] = False,
    depth: Depth = 1024,
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="Size of the trace file."),
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
    """Insert probes into a program: what a function was called with, and what it returned.

    \b
    p[:NAME] FUNC[+OFFSET] [[NAME=]FETCH[:TYPE]]...   when it is reached
    r[MAXACTIVE][:NAME] FUNC [[NAME=]FETCH[:TYPE]]... when it returns
    FUNC    a symbol, imported ones too; a C++, Rust or D source name, without
            its parameters if only one function has it; 0xADDRESS
    FETCH   $argN $retval %REG $stack $stackN @SYMBOL[+OFF] $comm \\NUMBER
            +OFFSET(FETCH): what is in memory there
    TYPE    u8 u16 u32 u64, s8 ... s64, x8 ... x64 (the default), string, symbol

    \b
    ftpatch probe ./shop 'p sell n=$arg1:s32' 'r sell $retval:s32' -o ./shop.p
    ftpatch probe /bin/cat 'p:o open path=+0($arg1):string' -o ./cat.p
    FTPATCH_TRACE=shop.trace ./shop.p; ftpatch report shop.trace
    ftpatch probe ./shop.p                            shows its probes

    If some probes cannot be laid, all of those are named and nothing is written; --keep-going
    lays the others.
    """
    as_json = wants_json(json, format_)
    if not probes:
        if output is not None or in_place or handler is not None:
            raise UsageError(program, "no probes", "say what to probe, as in 'p main'")
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
            probed = plan_probed(image, Probing(definitions, optimize, named, depth, room), refused)
            if refused.errors and not keep_going:
                raise refused.errors.pop()
        if not dry_run:
            wait_for(copy)
            lay_in(copy, image, probed.plan)
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
    from ftpatch.inject.methods import Way
    from ftpatch.probe.read_back import held_probes

    held = held_probes(open_image(program))
    if held is None:
        raise UsageError(program, "it has no probes", "say what to probe, as in 'p main'")
    ways = dict(enumerate(Way, 1))
    for one in held:
        if as_json:
            row = {"definition": one.text, "ip": hex(one.ip), "way": ways.get(one.way)}
            json_line(row)
        else:
            lines([one.text])


def _parsed(image: Image, probes: list[str], refused: Refused) -> Sequence[Definition]:
    from ftpatch.arch import arch_of
    from ftpatch.arch.registers import REGISTERS
    from ftpatch.probe import parse_probes

    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    registers = REGISTERS.get(arch.name) if arch else None
    if registers is None:
        known = ", ".join(REGISTERS)
        raise UsageError(image.path, "there are no probes for its architecture", f"only {known}")
    return parse_probes(probes, registers.names, refused, arguments=len(registers.arguments))


def _handler(text: str | None) -> Handler | None:
    """``STUB:FUNC``."""
    from ftpatch.probe.plan import Handler

    if text is None:
        return None
    stub, _, name = text.rpartition(":")
    if not stub or not name:
        raise UsageError(None, f"--handler {text}: it names no function", "write STUB.elf:FUNC")
    return Handler(Path(stub), name)


def _row(one: Placed, asks: Sequence[str]) -> dict[str, Any]:
    from ftpatch.probe import definition_text

    row = {
        "name": one.definition.name,
        "definition": definition_text(one.definition),
        "address": hex(one.address),
        "way": one.way.value,
        "reason": one.why,
    }
    return row | {"handled": list(asks)} if one.way.value == "trap" else row


def _said(probed: Probed, written: Path | None, cleared: str) -> None:
    placed = probed.placed
    width = max(len(one.definition.name) for one in placed)
    for one in placed:
        why = f" ({one.why})" if one.why else ""
        lines([f"{one.definition.name:{width}}  {one.way.value:4}  {one.address:#x}{why}"])
    traps = ", ".join(one.definition.name for one in placed if one.way.value == "trap")
    if traps and probed.asks:
        lines([f"{traps}: the program's own use of SIGILL is handled: {', '.join(probed.asks)}"])
    lines([cleared_line(cleared)] if cleared else [])
    lines([f"wrote {written}" if written else "dry run: nothing was written"])
