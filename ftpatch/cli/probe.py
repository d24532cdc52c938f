# SPDX-License-Identifier: MIT
"""``ftpatch probe``: ftrace's kprobe_events for a program on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftpatch.api.boot_probing import insert_probes
from ftpatch.api.probing import ProbeWords, probe_listing
from ftpatch.api.writing import Writing
from ftpatch.cli.completion import images, pids
from ftpatch.cli.console import lines, note_lines, tell_links, wait_for
from ftpatch.cli.options import (
    AllowSetuid,
    DryRun,
    Force,
    InPlace,
    Json,
    MaxStack,
    Off,
    Output,
    Quiet,
    Ring,
    Rotate,
    RunFormat,
    RunReports,
    Sign,
    Signal,
    StripSignature,
    Verbose,
    bytes_of,
    live_format,
    require_first,
    require_pid,
    wants_json,
)
from ftpatch.cli.outcome import all_told, skipped_lines
from ftpatch.cli.probe_told import print_lines, tell_held, tell_inserted
from ftpatch.errors import Exit, Refused, UsageError

__all__ = ["command"]

Program = Annotated[
    str | None,
    typer.Argument(
        metavar="PROG", autocompletion=images, help="Program to probe; none with --pid or -c."
    ),
]
Probes = Annotated[
    list[str],
    typer.Argument(
        metavar="PROBE",
        help="Probes in the forms above, as in kprobe_events [default: list those inserted].",
    ),
]


def command(
    program: Program = None,
    probes: Probes = [],  # noqa: B006 - typer copies it
    pid: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--pid",
            metavar="PID",
            autocompletion=pids,
            help="Running process, instead of PROG.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--command",
            metavar="COMMAND",
            help="Command line to run and probe, instead of PROG.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="N",
            help="With --pid or -c: time to probe for, such as 10 or 500ms [default: until "
            "Ctrl-C, or its end].",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="With --pid: leave the probes in place until `ftpatch undo --pid`."
        ),
    ] = False,
    reports: RunReports = [],  # noqa: B006
    regex: Annotated[
        bool,
        typer.Option(
            "--regex", help="FUNC is a regular expression for whole names, instead of a glob."
        ),
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="N",
            help="Functions that a wildcard may match, 0 for any number.",
        ),
    ] = 1000,
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
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Show the way that each probe would get, and write nothing; without PROBE, "
            "those of all functions, summed up.",
        ),
    ] = False,
    max_stack: MaxStack = 1024,
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="Trace file size."),
    ] = "64M",
    ring: Ring = False,
    rotate: Rotate = 0,
    off: Off = False,
    signal: Signal = "",
    sink: Annotated[
        str,
        typer.Option(
            "--sink", metavar="SINK", help="For a kernel: device that hits go to: {sinks}."
        ),
    ] = "",
    print_events: Annotated[
        bool,
        typer.Option(
            "--print-events",
            help="For a kernel or a module: print the probes as lines for kprobe_events.",
        ),
    ] = False,
    print_bootconfig: Annotated[
        bool,
        typer.Option(
            "--print-bootconfig", help="The same, as lines of a bootconfig: probes from boot on."
        ),
    ] = False,
    list_lines: Annotated[
        str,
        typer.Option(
            "--lines", metavar="FUNC", help="List a function's lines: a number can be probed."
        ),
    ] = "",
    list_vars: Annotated[
        str,
        typer.Option("--vars", metavar="FUNC|FILE:LINE", help="List what can be named at a place."),
    ] = "",
    output: Output = None,
    in_place: InPlace = False,
    force: Force = False,
    allow_setuid: AllowSetuid = False,
    strip_signature: StripSignature = False,
    sign: Sign = None,
    dry_run: DryRun = False,
    json: Json = False,
    format_: RunFormat = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Insert probes that record arguments and return values.

    \b
    p[:NAME] FUNC[+OFFSET] [[NAME=]FETCH[:TYPE]]...   on entry, or at OFFSET
    r[MAXACTIVE][:NAME] FUNC [[NAME=]FETCH[:TYPE]]... on return
    -:NAME                                            take away one that PROG has
    FUNC    symbol, also an imported one; C++, Rust or D source name, without
            parameters if unambiguous; 0xADDRESS; FILE:LINE; LIB:FUNC of a
            library that the program loads; in programs a glob (* ? []) is each
            function that it matches, and PLT:GLOB each imported one; `*` in
            NAME is the function's name
    FETCH   $argN $retval %REG $stack $stackN @SYMBOL[+OFF] $comm \\NUMBER
            +OFFSET(FETCH): memory at that address; $retval:f64 %xmm0:f64
            %v0:f32: a float; with debug information
            NAME, as in customer->name items[2].price *p $retval->len
    TYPE    u8 u16 u32 u64, s8 ... s64, x8 ... x64 (the default), f32 f64,
            string, symbol
    then    stack                           the calls that led to each hit, all
            stack(5) stack:fp               or 5; or along frame pointers
            hist:keys=NAME.log2:vals=NAME   count hits, instead of recording them;
                                            by $caller or stack(5):fp, too
            if NAME > 3 && every(100)       which hits, at the end; also
            if within(FUNC) && first(9)     in calls of FUNC, which an r probe
                                            is on
            if $depth < 3                   in fewer calls that r probes are on

    \b
    Examples:
    ftpatch probe ./shop 'p sell n=$arg1:s32' 'r sell ret=$retval:s32' -o ./shop.p
    ftpatch probe /bin/cat 'p:o open path=$arg1:string' -o ./cat.p
    ftpatch probe ./shop 'p sell customer->name qty' 'p shop.c:17 left'
    FTPATCH_TRACE=shop.trace ./shop.p; ftpatch report shop.trace
    ftpatch probe ./shop.p                            lists its probes
    ftpatch probe ./shop 'p:calls PLT:*' 'p:* parse_*' -o ./shop.p
    ftpatch probe ./shop 'p libc.so.6:malloc n=$arg1:u64' -o ./shop.p
    ftpatch probe /bin/bash --plan                    all its functions, by way
    ftpatch probe --pid 1234 'p libc.so.6:malloc size=$arg1:u64' --seconds 5
    ftpatch probe -c 'ls -l' 'p libc.so.6:malloc n=$arg1:u64 hist:keys=n.log2'
    ftpatch probe -c ./shop 'r sell' --format histogram    how long calls take
    ftpatch probe vmlinux 'r:mk do_mkdirat ret=$retval:s32'
    ftpatch probe vmlinux --print-events 'r:mk do_mkdirat ret=$retval:s32'

    A process is probed until --seconds have passed, it ends or you press Ctrl-C; then a report is
    printed. -o keeps the recording. With -c the program and its libraries are probed before any of
    their code runs, and the exit code is the program's own, or 125 if ftpatch itself failed.

    If any probe cannot be inserted, each such probe is reported and nothing is written, unless
    --keep-going is given. Strip a program before: strip(1) drops probes.
    """
    from ftpatch.cli.process_update import require_unused, require_unused_beside

    if pid is not None or run is not None:
        from ftpatch.cli.probe_process import Wanted, list_probes, probe_command, probe_process

        require_unused_beside("--pid", {"-c": pid is not None and run is not None})
        require_unused(
            {
                "--handler": handler,
                "--in-place": in_place,
                "--allow-setuid": allow_setuid,
                "--dry-run": dry_run,
                "--sink": sink,
                "--strip-signature": strip_signature,
                "--sign": sign,
                "--print-events": print_events,
                "--print-bootconfig": print_bootconfig,
                "--lines": list_lines,
                "--vars": list_vars,
                "--plan": plan,
                "--rotate": rotate > 0,
                "--signal": signal,
            },
            "--pid" if run is None else "-c",
        )
        given = [*([program] if program is not None else []), *probes]
        if pid is None:
            require_pid({"--keep": keep})
        if not given:
            recorded = seconds is not None or output is not None
            if recorded or keep or reports or pid is None:
                raise UsageError(None, "no probes", "specify a probe, such as 'p main'")
            list_probes(pid, as_json=wants_json(json, format_))
            return
        timed = seconds is not None
        if keep:
            require_unused_beside("--keep", {"--seconds": timed, "--report": reports})
        wanted = Wanted(
            probes=given,
            optimize=optimize,
            depth=max_stack,
            size=bytes_of(size),
            ring=ring,
            off=off,
            trace=output,
            overwrite=force,
            seconds=seconds,
            keeps=keep,
            keep_going=keep_going,
            as_json=keep and wants_json(json, format_),
            format=None if keep else live_format(json, format_),
            reports=reports,
            quiet=quiet,
            regex=regex,
            limit=limit,
            verbose=verbose,
        )
        refused = Refused()
        if run is not None:
            with all_told(refused):
                code = probe_command(run, wanted, refused)
            raise typer.Exit(code)
        assert pid is not None
        with all_told(refused):
            all_laid_in = probe_process(pid, wanted, refused)
        if not all_laid_in:
            raise typer.Exit(Exit.FOUND)
        return
    as_json = wants_json(json, format_)
    require_pid({"--seconds": seconds is not None, "--keep": keep, "--report": reports})
    if program is None:
        raise UsageError(
            None, "no PROG, --pid or -c", "name a program, a running process or a command line"
        )
    image = Path(program)
    if list_lines or list_vars:
        option = "--lines" if list_lines else "--vars"
        both = bool(list_lines and list_vars)
        beside = {"PROBE": probes, "--vars": both, "--json": json, "--output": output}
        require_unused_beside(option, beside)
        lines(probe_listing(image, function=list_lines, place=list_vars))
        return
    if print_events or print_bootconfig:
        option = "--print-events" if print_events else "--print-bootconfig"
        others = {"--output": output, "--in-place": in_place, "--handler": handler, "--json": json}
        both = print_events and print_bootconfig
        require_unused_beside(option, others | {"--print-bootconfig": both})
        print_lines(
            image, probes, "bootconfig" if print_bootconfig else "kprobe_events", keep_going
        )
        return
    if plan:
        from ftpatch.cli.probe_plan import tell_plan

        others = {"--output": output, "--in-place": in_place, "--handler": handler}
        require_unused_beside("--plan", others)
        require_first(image, probes, "probes")
        refused = Refused()
        with all_told(refused):
            tell_plan(
                image,
                probes,
                refused,
                optimize=optimize,
                regex=regex,
                limit=limit,
                as_json=as_json,
            )
        if not quiet:
            note_lines(skipped_lines([*refused.skipped.values()], verbose=verbose))
        if refused.errors:
            raise typer.Exit(Exit.FOUND)
        return
    if not probes:
        if output is not None or in_place or handler is not None:
            raise UsageError(image, "no probes", "specify a probe, such as 'p main'")
        tell_held(image, as_json=as_json)
        return
    require_first(image, probes, "probes")
    from ftpatch.inject.switch_signal import switch_signal

    words = ProbeWords(
        probes=probes,
        handler=handler,
        optimize=optimize,
        keep_going=keep_going,
        max_stack=max_stack,
        size=bytes_of(size),
        ring=ring,
        off=off,
        rotate=rotate,
        signal=switch_signal(signal or 0),
        regex=regex,
        limit=limit,
        sink=sink,
    )
    writing = Writing(
        image=image,
        output=output,
        in_place=in_place,
        force=force,
        allow_setuid=allow_setuid,
        dry_run=dry_run,
        strip_signature=strip_signature,
        sign=sign,
    )
    refused = Refused()
    with all_told(refused):
        probed = insert_probes(writing, words, refused, wait_for)
    tell_links(probed)
    if not quiet:
        note_lines(skipped_lines(probed.skipped, verbose=verbose))
    tell_inserted(probed, as_json=as_json, quiet=quiet)
    if probed.refused:
        raise typer.Exit(Exit.FOUND)
