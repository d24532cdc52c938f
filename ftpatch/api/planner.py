# SPDX-License-Identifier: MIT
"""Planners: enable and disable, for the sites of an image or of each of many images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ftpatch.errors import UsageError
from ftpatch.names.suggest import meant, near

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ftpatch.boot.plan import BootTracing
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites
    from ftpatch.tracer.plan import Tracing
    from ftpatch.update.update import Prepared

__all__ = ["Disable", "Enable", "Planner", "SitePlanner"]


class Planner(ABC):
    """The plan of an update of an image."""

    def prepare(self, path: Path, *, strip_signature: bool) -> Prepared:
        """Plan an update of one image and verify it. Raises what the plan raises, and UsageError
        where a signature would have to go."""
        from ftpatch.update.update import prepare

        return prepare(path, self, strip_signature=strip_signature)

    @abstractmethod
    def __call__(self, sites: Sites, missing: set[str] | None = None) -> Plan:
        """The plan. ``missing`` collects filters that match nothing in one of many modules; without
        it they are errors."""


@dataclass(frozen=True, kw_only=True)
class SitePlanner(Planner):
    """The plan of an update of an image, or of each of many, by the options that select sites."""

    filters: Sequence[str]
    notrace: Sequence[str]
    regex: bool
    site: str | None
    keep_records: bool

    def selected(self, sites: Sites, missing: set[str] | None) -> NDArray[np.bool_]:
        """Mask of the chosen sites. Raises SiteRefused for those that call a kernel's probes."""
        from ftpatch.ftrace.filter import Selection, select_sites

        mask = select_sites(sites, Selection(self.filters, self.notrace, self.regex), missing)
        if sites.blocks and sites.image.is_kernel:
            from ftpatch.boot.hooks import require_unprobed

            require_unprobed(sites, mask)
        return mask

    def expanded(self) -> Self:
        """The same with the lines of filter files in their place: a pipe can be read once."""
        from ftpatch.ftrace.filter import Selection, expand

        lists = expand(Selection(self.filters, self.notrace, self.regex))
        return replace(self, filters=lists.filters, notrace=lists.notrace)


@dataclass(frozen=True, kw_only=True)
class Enable(SitePlanner):
    """Plan calls of ``to``, or of a tracer that is laid in, which may follow library ``calls`` as
    well. Raises UsageError for options that exclude each other."""

    to: str | None = None
    tracing: Tracing | None = None
    booting: BootTracing | None = None
    calls: bool = False

    def __post_init__(self) -> None:
        if self.site is not None and (self.filters or self.notrace):
            raise UsageError(None, "--site selects a single site", "remove -f and -n")
        named = self.to is not None or self.site is not None
        if self.booting is not None and (named or self.keep_records):
            how = "remove --to, --site and --keep-records"
            raise UsageError(None, "--tracer boot brings its own callee", how)
        if self.tracing is not None and named:
            raise UsageError(None, "--tracer brings its own callee", "remove --to and --site")
        if self.calls and self.tracing is None:
            raise UsageError(None, "--libcalls requires a tracer", "use --tracer function_graph")

    def prepare(self, path: Path, *, strip_signature: bool) -> Prepared:
        """The same; with ``calls`` the image may have no sites."""
        if self.tracing is not None:
            together = self._together(path, self.tracing)
            if together is not None:
                return together
        if not self.calls or self.tracing is None:
            return super().prepare(path, strip_signature=strip_signature)
        from ftpatch.ftrace.filter import Selection
        from ftpatch.image import open_image
        from ftpatch.tracer.choice import Choice
        from ftpatch.tracer.program import prepare_program, with_calls

        image = open_image(path)
        choice = Choice(Selection(self.filters, self.notrace, self.regex))
        return prepare_program(image, choice, with_calls(image, choice, self.tracing))

    def _together(self, path: Path, tracing: Tracing) -> Prepared | None:
        """Prepare a program or a library that has probes or watches for a tracer as well; None for
        one that has none."""
        from ftpatch.api.laid_in import laid_in
        from ftpatch.errors import Refused
        from ftpatch.ftrace.sites import read_sites
        from ftpatch.image import open_image
        from ftpatch.image.injected import laid_in_at
        from ftpatch.inject.beside import TOGETHER
        from ftpatch.inject.read_back import recording_of
        from ftpatch.tracer.plan import traceable
        from ftpatch.update.update import Prepared, prepare_bare

        if path.is_dir():
            return None
        image = open_image(path)
        if not (image.is_program or image.is_library) or laid_in_at(image) is None:
            return None
        told = recording_of(image)
        if told is not None and told.tracer:
            raise UsageError(path, "already has a tracer", "run `ftpatch undo` first")
        if tracing.tracer not in TOGETHER or tracing.arguments or self.calls:
            what = "--args" if tracing.arguments else "--libcalls" if self.calls else ""
            reason = f"it has probes or watches, beside which {what or tracing.tracer} cannot be"
            raise UsageError(path, reason, f"use --tracer {' or '.join(TOGETHER)} alone")
        has = laid_in(image)
        assert has is not None
        sites = read_sites(has.base)
        mask = traceable(sites, self.selected(sites, None), libraries=False)
        before = has.contents.recording(tracing.depth, tracing.size, tracing.keeping)
        contents = replace(before, tracer=tracing.tracer, sites=sites.ip[mask])
        refused = Refused()
        plan = has.planned(contents, refused).plan
        if refused.errors:
            raise refused.errors[0]
        prepared = prepare_bare(image, plan)
        return Prepared(image, sites, prepared.plan, ())

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


@dataclass(frozen=True, kw_only=True)
class Disable(SitePlanner):
    """Plan NOPs of the form ``nop``. Raises UsageError for options that exclude each other."""

    nop: str | None = None

    def __post_init__(self) -> None:
        if self.site is not None and (self.filters or self.notrace or self.nop):
            raise UsageError(None, "--site selects a single site", "remove -f, -n and --nop")

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
        hint = meant(near(name, nops), known)
        raise UsageError(sites.image.path, f"{sites.arch.name} has no NOP {name!r}", hint)
    return nops[name]
