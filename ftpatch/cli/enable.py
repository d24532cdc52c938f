# SPDX-License-Identifier: MIT
"""``ftpatch enable``: turn sites into calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.api.planner import Enable
from ftpatch.cli.completion import tracers
from ftpatch.cli.options import (
    BOOT,
    AllowSetuid,
    Args,
    DryRun,
    Filter,
    Force,
    Format,
    InPlace,
    Json,
    KeepRecords,
    LibCalls,
    MaxEvents,
    MaxStack,
    Notrace,
    Off,
    OptionalTree,
    Output,
    Pid,
    Quiet,
    Recording,
    Regex,
    Ring,
    Rotate,
    Sign,
    Signal,
    Sink,
    Site,
    StripSignature,
    Until,
    Update,
    Verbose,
    WithTime,
    bytes_of,
    require_input,
    require_pid,
    wants_json,
)
from ftpatch.cli.update import run_update
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.boot.plan import BootTracing
    from ftpatch.tracer.plan import Tracing

__all__ = ["command"]


def command(
    image: OptionalTree = None,
    pid: Pid = None,
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="SYMBOL|0xADDR",
            help="Function that the sites call [default: the image's ftrace_caller].",
        ),
    ] = None,
    tracer: Annotated[
        str | None,
        typer.Option(
            "--tracer",
            metavar="NAME|STUB",
            autocompletion=tracers,
            help="Tracer to insert and call: function, function_graph, function_profile, nop or "
            "the path of your own stub; boot for a kernel or a module, which may take a stub, too.",
        ),
    ] = None,
    sink: Sink = "",
    until: Until = "",
    most: MaxEvents = None,
    time: WithTime = False,
    args: Args = False,
    lib: Annotated[
        list[str],
        typer.Option(
            "--lib",
            metavar="GLOB",
            help="With --pid: loaded libraries to trace as well, by name (* ? []); -f and -n apply "
            "to their functions, too. Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    recording: Recording = False,
    libcalls: LibCalls = False,
    max_stack: MaxStack = 1024,
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="Trace file size."),
    ] = "64M",
    ring: Ring = False,
    rotate: Rotate = 0,
    off: Off = False,
    signal: Signal = "",
    site: Site = None,
    output: Output = None,
    in_place: InPlace = False,
    force: Force = False,
    keep_records: KeepRecords = False,
    allow_setuid: AllowSetuid = False,
    strip_signature: StripSignature = False,
    sign: Sign = None,
    dry_run: DryRun = False,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Turn the selected sites into calls.

    They call ftrace_caller, unless --to or --tracer names another callee. In a running process they
    call a tracer that ftpatch inserts; -o is its trace file. Strip a program before it gets a
    tracer: strip(1) drops what has been inserted.

    Example: ftpatch enable vmlinux -f 'vfs_*' -o vmlinux.vfs
    """
    as_json = wants_json(json, format_)
    require_input([] if image is None else [image], [] if pid is None else [pid])
    tracing: Tracing | None = None
    booting: BootTracing | None = None
    if tracer != BOOT and (sink or until or most is not None or time):
        words = "--sink, --until, --max and --time"
        raise UsageError(None, f"{words} require --tracer boot", "remove them")
    named = args or ring or off or rotate or signal or (max_stack, size) != (1024, "64M")
    if pid is not None and tracer is None and named and not recording:
        tracer = "function_graph"  # the usual one, with options
    keeps = {"--ring": ring, "--off": off, "--rotate": rotate, "--signal": signal}
    if tracer in (None, BOOT) and any(keeps.values()) and not recording:
        asked = next(option for option, value in keeps.items() if value)
        raise UsageError(None, f"{asked} requires a --tracer of programs", "name one, or remove it")
    if tracer == BOOT:
        from ftpatch.boot.plan import BootTracing

        booting = BootTracing(sink=sink, until=until, most=most, time=time)
    elif tracer is not None:
        from ftpatch.inject.runtime import Keeping
        from ftpatch.inject.switch_signal import switch_signal
        from ftpatch.tracer.plan import Tracing

        tracing = Tracing(
            tracer=tracer,
            depth=max_stack,
            size=bytes_of(size),
            arguments=args,
            keeping=Keeping(ring=ring, off=off, rotate=rotate, signal=switch_signal(signal or 0)),
        )
    if image is None:
        from ftpatch.cli.process_update import (
            enable_process,
            require_unused,
            require_unused_beside,
            switch_recording,
        )
        from ftpatch.ftrace.filter import Selection

        assert pid is not None
        unused = {"--to": to, "--site": site, "--libcalls": libcalls, "--in-place": in_place}
        unused |= {"--keep-records": keep_records, "--strip-signature": strip_signature}
        unused |= {"--sign": sign, "--rotate": rotate > 0, "--signal": signal}
        require_unused(unused | {"--dry-run": dry_run, "--tracer boot": booting is not None})
        if recording:
            beside: dict[str, object] = {"-f": filter_, "-n": notrace, "--lib": lib, "-o": output}
            beside |= {"--tracer": tracer, "--ring": ring, "--off": off}
            require_unused_beside("--recording", beside)
            switch_recording(pid, on=True, as_json=as_json, quiet=quiet)
            return
        enable_process(
            pid,
            Selection(filter_, notrace, regex),
            lib,
            tracing,
            output,
            force=force,
            as_json=as_json,
            quiet=quiet,
        )
        return
    require_pid({"--recording": recording, "--lib": lib})
    update = Update(
        image=image,
        output=output,
        in_place=in_place,
        force=force,
        allow_setuid=allow_setuid,
        dry_run=dry_run,
        as_json=as_json,
        quiet=quiet,
        verbose=verbose,
        strip_signature=strip_signature,
        sign=sign,
    )
    enable = Enable(
        filters=filter_,
        notrace=notrace,
        regex=regex,
        site=site,
        keep_records=keep_records,
        to=to,
        tracing=tracing,
        booting=booting,
        calls=libcalls,
    )
    if libcalls and image.is_dir():
        raise UsageError(image, "--libcalls works on a program, not on a directory")
    run_update(update, enable)
