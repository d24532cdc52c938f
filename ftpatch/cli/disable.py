# SPDX-License-Identifier: MIT
"""``ftpatch disable``: turn sites into NOPs."""

from __future__ import annotations

from typing import Annotated

import typer

from ftpatch.api.planner import Disable
from ftpatch.cli.options import (
    AllowSetuid,
    DryRun,
    Filter,
    Force,
    Format,
    InPlace,
    Json,
    KeepRecords,
    Notrace,
    OptionalTree,
    Output,
    Pid,
    Quiet,
    Recording,
    Regex,
    Sign,
    Site,
    StripSignature,
    Update,
    Verbose,
    require_input,
    require_pid,
    wants_json,
)
from ftpatch.cli.update import run_update

__all__ = ["command"]


def command(
    image: OptionalTree = None,
    pid: Pid = None,
    lib: Annotated[
        list[str],
        typer.Option(
            "--lib",
            metavar="GLOB",
            help="With --pid: loaded libraries whose sites to disable as well, by name (* ? []); "
            "-f and -n apply to their functions, too. Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    filter_: Filter = [],  # noqa: B006
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    recording: Recording = False,
    nop: Annotated[
        str | None,
        typer.Option(
            "--nop",
            metavar="p6|nop5|jmp",
            help="NOP form on x86 [default: the image's own (x86_nops), or p6].",
        ),
    ] = None,
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
    """Turn the selected sites into NOPs.

    In a running process: those that `ftpatch enable --pid` turned into calls.

    Example: ftpatch disable vmlinux -f 'vfs_*' -n vfs_read
    """
    as_json = wants_json(json, format_)
    require_input([] if image is None else [image], [] if pid is None else [pid])
    if image is None:
        from ftpatch.cli.process_update import (
            disable_process,
            require_unused,
            require_unused_beside,
            switch_recording,
        )
        from ftpatch.ftrace.filter import Selection

        assert pid is not None
        unused = {"--nop": nop, "--site": site, "-o": output, "--in-place": in_place}
        unused |= {"--sign": sign, "--strip-signature": strip_signature}
        require_unused(unused | {"--keep-records": keep_records, "--dry-run": dry_run})
        if recording:
            require_unused_beside("--recording", {"-f": filter_, "-n": notrace, "--lib": lib})
            switch_recording(pid, on=False, as_json=as_json, quiet=quiet)
            return
        selection = Selection(filter_, notrace, regex)
        disable_process(pid, selection, lib, as_json=as_json, quiet=quiet)
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
    disable = Disable(
        filters=filter_,
        notrace=notrace,
        regex=regex,
        site=site,
        keep_records=keep_records,
        nop=nop,
    )
    run_update(update, disable)
