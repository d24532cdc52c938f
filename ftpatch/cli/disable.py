# SPDX-License-Identifier: MIT
"""``ftpatch disable``: turn sites into NOPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

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
    Verbose,
    wants_json,
)
from ftpatch.cli.planner import Planner, Update
from ftpatch.cli.update import run_update
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites

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
    if site is not None and (filter_ or notrace or nop):
        raise UsageError(None, "--site selects a single site", "remove -f, -n and --nop")

    disable = _Disable(
        filters=filter_,
        notrace=notrace,
        regex=regex,
        site=site,
        keep_records=keep_records,
        nop=nop,
    )
    run_update(update, disable)


@dataclass(frozen=True, kw_only=True)
class _Disable(Planner):
    """NOPs of the form ``nop``."""

    nop: str | None

    def __call__(self, sites: Sites, missing: set[str] | None = None) -> Plan:
        from ftpatch.ftrace.named_sites import plan_named_site
        from ftpatch.ftrace.plan import plan_disable

        if self.site is not None:
            return plan_named_site(sites, self.site, None, enable=False)
        mask = self.selected(sites, missing)
        return plan_disable(sites, mask, _nop(sites, self.nop), keep_records=self.keep_records)


def _nop(sites: Sites, name: str | None) -> bytes:
    if name is None:
        return b""
    nops = sites.arch.nops
    if name not in nops:
        known = f"use {', '.join(nops)}" if nops else "remove --nop"
        raise UsageError(sites.image.path, f"{sites.arch.name} has no NOP {name!r}", known)
    return nops[name]
