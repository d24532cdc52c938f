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
    ImageOrTree,
    InPlace,
    Json,
    KeepRecords,
    Notrace,
    Output,
    Quiet,
    Regex,
    Site,
    StripSignature,
    Update,
    Verbose,
    wants_json,
)
from ftpatch.cli.update import run_update

__all__ = ["command"]


def command(
    image: ImageOrTree,
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
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
    dry_run: DryRun = False,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Turn the selected sites into NOPs.

    Example: ftpatch disable vmlinux -f 'vfs_*' -n vfs_read
    """
    as_json = wants_json(json, format_)
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
