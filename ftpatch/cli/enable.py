"""``ftpatch enable``: make sites call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.boot_options import BOOT, Most, Sink, Time, Until
from ftpatch.cli.options import (
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
    Notrace,
    Output,
    Quiet,
    Regex,
    Site,
    StripSignature,
    Verbose,
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

__all__ = ["NAME", "command"]

NAME = "enable"


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
            help="What the sites call. Default: the image's own ftrace_caller.",
        ),
    ] = None,
    tracer: Annotated[
        str | None,
        typer.Option(
            "--tracer",
            metavar="NAME|STUB",
            help="Insert a tracer for the sites to call: function, function_graph, "
            "function_profile, nop, or the path of a stub of your own; for a kernel: boot.",
        ),
    ] = None,
    sink: Sink = "",
    until: Until = "",
    most: Most = None,
    time: Time = False,
    args: Args = False,
    depth: Depth = 1024,
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="Size of the trace file."),
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
    """Make the selected sites call ftrace_caller, or another function of the image."""
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
        raise UsageError(None, "--site names one site", "leave -f and -n out")

    tracing: Tracing | None = None
    booting: BootTracing | None = None
    if tracer != BOOT and (sink or until or most is not None or time):
        words = "--sink, --until, --max and --time"
        raise UsageError(None, f"{words} are for --tracer boot", "leave them out")
    if tracer == BOOT:
        from ftpatch.boot.plan import BootTracing

        if to is not None or site is not None or keep_records:
            how = "leave --to, --site and --keep-records out"
            raise UsageError(None, "--tracer boot brings its own callee", how)
        booting = BootTracing(sink, until, most, time)
    elif tracer is not None:
        from ftpatch.tracer.plan import Tracing

        if to is not None or site is not None:
            raise UsageError(None, "--tracer brings its own callee", "leave --to and --site out")
        tracing = Tracing(tracer, depth, bytes_of(size), args)
    plan = _Enable(
        filters=filter_,
        notrace=notrace,
        regex=regex,
        site=site,
        keep_records=keep_records,
        to=to,
        tracing=tracing,
        booting=booting,
    )
    run_update(update, plan)


@dataclass(frozen=True, kw_only=True)
class _Enable(Planner):
    """Calls of ``to``."""

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
