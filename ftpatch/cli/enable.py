# SPDX-License-Identifier: MIT
"""``ftpatch enable``: turn sites into calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.options import (
    BOOT,
    AllowSetuid,
    Args,
    Depth,
    DryRun,
    Filter,
    Force,
    Format,
    ImageOrTree,
    InPlace,
    Json,
    KeepRecords,
    MaxEvents,
    Notrace,
    Output,
    Quiet,
    Regex,
    Sink,
    Site,
    StripSignature,
    Until,
    Verbose,
    WithTime,
    bytes_of,
    wants_json,
)
from ftpatch.cli.planner import Planner, Update
from ftpatch.cli.update import run_update
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.boot.plan import BootTracing
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites
    from ftpatch.tracer.plan import Tracing

__all__ = ["command"]


def command(
    image: ImageOrTree,
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
            help="Tracer to insert and call: function, function_graph, function_profile, nop or "
            "the path of your own stub; boot for a kernel.",
        ),
    ] = None,
    sink: Sink = "",
    until: Until = "",
    most: MaxEvents = None,
    time: WithTime = False,
    args: Args = False,
    depth: Depth = 1024,
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="Trace file size."),
    ] = "64M",
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
    """Turn the selected sites into calls.

    They call ftrace_caller, unless --to or --tracer names another callee.

    Example: ftpatch enable vmlinux -f 'vfs_*' -o vmlinux.vfs
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
    if site is not None and (filter_ or notrace):
        raise UsageError(None, "--site selects a single site", "remove -f and -n")

    tracing: Tracing | None = None
    booting: BootTracing | None = None
    if tracer != BOOT and (sink or until or most is not None or time):
        words = "--sink, --until, --max and --time"
        raise UsageError(None, f"{words} require --tracer boot", "remove them")
    if tracer == BOOT:
        from ftpatch.boot.plan import BootTracing

        if to is not None or site is not None or keep_records:
            how = "remove --to, --site and --keep-records"
            raise UsageError(None, "--tracer boot brings its own callee", how)
        booting = BootTracing(sink=sink, until=until, most=most, time=time)
    elif tracer is not None:
        from ftpatch.tracer.plan import Tracing

        if to is not None or site is not None:
            raise UsageError(None, "--tracer brings its own callee", "remove --to and --site")
        tracing = Tracing(tracer=tracer, depth=depth, size=bytes_of(size), arguments=args)
    enable = _Enable(
        filters=filter_,
        notrace=notrace,
        regex=regex,
        site=site,
        keep_records=keep_records,
        to=to,
        tracing=tracing,
        booting=booting,
    )
    run_update(update, enable)


@dataclass(frozen=True, kw_only=True)
class _Enable(Planner):
    """Plan calls of ``to``."""

    to: str | None
    tracing: Tracing | None
    booting: BootTracing | None

    def __call__(self, sites: Sites, missing: set[str] | None = None) -> Plan:
        from ftpatch.ftrace.addr import resolve_target
        from ftpatch.ftrace.named_sites import plan_named_site
        from ftpatch.ftrace.plan import plan_enable

        if self.site is not None:
            addr = resolve_target(sites, self.to).addr if self.to else None
            return plan_named_site(sites, self.site, addr, enable=True)
        if self.booting is not None:
            from ftpatch.boot.plan import plan_boot

            return plan_boot(sites, self.selected(sites, missing), self.booting)
        if self.tracing is not None:
            from ftpatch.tracer.plan import plan_traced

            return plan_traced(sites, self.selected(sites, missing), self.tracing)
        callee = resolve_target(sites, self.to)
        mask = self.selected(sites, missing)
        return plan_enable(sites, mask, callee, keep_records=self.keep_records)
