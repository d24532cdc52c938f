# SPDX-License-Identifier: MIT
"""A program or a library that has something laid in, and the same with something else in its place.

What is laid in is always made anew, and whole, from the program as it was before. So a program to
which probes were added one by one is what one command would have made, and each command is undone
by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ftpatch.api.recording_limits import MAX_STACK, TRACE_SIZE
from ftpatch.errors import FtpatchError, Refused, UsageError
from ftpatch.inject.runtime import Keeping

if TYPE_CHECKING:
    from ftpatch.ftrace.plan import Plan
    from ftpatch.image import Image
    from ftpatch.inject.beside import Beside
    from ftpatch.probe import Definition
    from ftpatch.probe.plan import Probed
    from ftpatch.probe.wildcards import Wildcards
    from ftpatch.watch import Watch

__all__ = ["Contents", "LaidIn", "alone", "laid_in"]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Everything laid in: the name of a ``tracer`` that the ``sites`` call, ip uint64[n], empty for
    none; probes and watches; ``depth`` and ``size`` as of a ret_stack (entries) and of a trace file
    (bytes); how probes are placed, and what ``wildcards`` of new ones match; what is kept of events
    (``keeping``)."""

    tracer: str = ""
    sites: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    probes: tuple[Definition, ...] = ()
    watches: tuple[Watch, ...] = ()
    depth: int = MAX_STACK
    size: int = TRACE_SIZE
    optimize: bool = True
    wildcards: Wildcards | None = None
    keeping: Keeping = field(default_factory=Keeping)

    def recording(self, depth: int, size: int, keeping: Keeping) -> Contents:
        """The same with another ret_stack (entries) and trace file (bytes), where these are not the
        usual ones, or no returns were hooked before, and ``keeping`` as either asks for."""
        hooks = bool(self.tracer or self.probes)  # watches alone have next to none
        return replace(
            self,
            depth=self.depth if hooks and depth == MAX_STACK else depth,
            size=self.size if size == TRACE_SIZE else size,
            keeping=self.keeping | keeping,
        )

    @property
    def kinds(self) -> int:
        """The number of kinds of events that these record."""
        return bool(self.tracer) + bool(self.probes) + bool(self.watches)


@dataclass(frozen=True, kw_only=True)
class LaidIn:
    """A program, and ``base``, what it was before anything was laid into it; ``contents`` made it
    what it is."""

    image: Image
    base: Image
    contents: Contents

    def planned(self, contents: Contents, refused: Refused) -> Probed:
        """Plan other contents in place of those that it has. Raises what planning raises, and
        UsageError for what cannot be together."""
        from ftpatch.inject.anew import in_place_of

        made = _made(self.base, contents, refused)
        return replace(made, plan=in_place_of(self.image, self.base, made.plan))


def laid_in(image: Image) -> LaidIn | None:
    """Read what a program has laid in; None for one that has nothing. Raises UsageError for what
    cannot be made anew, InputError without its journal."""
    from ftpatch.inject.anew import before_laying, holds_plan
    from ftpatch.inject.read_back import recording_of

    told = recording_of(image) if image.is_program or image.is_library else None
    if told is None:
        return None
    base, contents = before_laying(image), _contents(image)
    for one in (contents, replace(contents, optimize=False)):
        refused = Refused()
        try:
            plan = _made(base, one, refused).plan
        except FtpatchError:
            continue
        if not refused.errors and holds_plan(image, base, plan):
            return LaidIn(image=image, base=base, contents=one)
    reason = "what it has was laid in by another version of ftpatch, or with options of its own"
    raise alone(image, f"{reason} (--args, --lib, --libcalls, --handler), or sites were switched")


def alone(image: Image, reason: str) -> UsageError:
    """The error for what must be laid in whole."""
    return UsageError(image.path, reason, "run `ftpatch undo`, and lay in all of it again")


def _contents(image: Image) -> Contents:
    """Read what a program has. Raises UsageError for what cannot be with others."""
    from ftpatch.api.probe_texts import parsed_probes
    from ftpatch.inject.beside import TOGETHER
    from ftpatch.inject.read_back import recording_of
    from ftpatch.probe.read_back import injected_probes
    from ftpatch.watch.plan import injected_watch_list

    told, refused = recording_of(image), Refused()
    assert told is not None
    if told.tracer and told.tracer not in TOGETHER:
        named = "tracer of your own" if told.tracer == "user" else f"{told.tracer} tracer"
        hint = f"run `ftpatch undo`, and use {' or '.join(TOGETHER)}"
        raise UsageError(image.path, f"its {named} works alone", hint)
    texts = [one.text for one in injected_probes(image) or ()]
    probes = parsed_probes(image, texts, refused) if texts else ()
    if any(one.library for one in probes):
        raise alone(image, "it has probes of libraries, whose copies were made for it as it is")
    return Contents(
        tracer=told.tracer,
        sites=_calling(image, told.span) if told.tracer else np.empty(0, np.uint64),
        probes=tuple(probes),
        watches=injected_watch_list(image),
        depth=told.depth,
        size=told.size,
        keeping=told.keeping,
    )


def _calling(image: Image, span: tuple[int, int]) -> NDArray[np.uint64]:
    """The sites that call what is in a span of link addresses, ip uint64[n]."""
    from ftpatch.arch import State
    from ftpatch.ftrace.sites import read_sites

    sites = read_sites(image)
    there = (sites.addr >= np.uint64(span[0])) & (sites.addr < np.uint64(span[1]))
    found: NDArray[np.uint64] = sites.ip[there & (sites.state == State.CALL)]
    return found


def _made(base: Image, contents: Contents, refused: Refused) -> Probed:
    """Plan contents for a program that has none."""
    from ftpatch.probe.plan import Probing, no_probes, plan_probed
    from ftpatch.probe.wildcards import Wildcards

    together = contents.kinds > 1
    if not together and not contents.probes:
        return replace(no_probes(), plan=_alone(base, contents))
    if together and contents.keeping.ring:
        reason = "a ring (--ring) keeps events of one kind: a tracer's, of probes or of watches"
        raise UsageError(base.path, reason, "run `ftpatch undo`, and lay in all without --ring")
    probing = Probing(
        definitions=contents.probes,
        optimize=contents.optimize,
        handler=None,
        depth=contents.depth,
        size=contents.size,
        wildcards=contents.wildcards or Wildcards(),
        beside=_beside(base, contents) if together else None,
        keeping=contents.keeping,
    )
    if together and not base.is_library and any(one.library for one in contents.probes):
        reason = "probes of libraries are not recorded together with a tracer or watches"
        raise UsageError(base.path, reason, "use `ftpatch probe -c`")
    probed = plan_probed(base, probing, refused)
    if not contents.tracer:
        return probed
    from ftpatch.core.changes import Changes
    from ftpatch.ftrace.addr import Callee
    from ftpatch.ftrace.plan import plan_enable
    from ftpatch.ftrace.sites import read_sites
    from ftpatch.inject.beside import SITE_CALLER

    sites = read_sites(base)
    mask = np.isin(sites.ip, contents.sites)
    calls = plan_enable(sites, mask, Callee(probed.caller, SITE_CALLER))
    changes = Changes.concat([calls.changes, probed.plan.changes])
    return replace(probed, plan=replace(calls, changes=changes, tail=probed.plan.tail))


def _alone(base: Image, contents: Contents) -> Plan:
    """Plan a tracer, or watches, or nothing."""
    from ftpatch.ftrace.sites import read_sites
    from ftpatch.probe.plan import no_probes
    from ftpatch.tracer.plan import Tracing, plan_traced
    from ftpatch.watch.plan import plan_first

    if contents.watches:
        return plan_first(base, contents.watches, contents.size, contents.keeping)
    if not contents.tracer:
        return no_probes().plan
    sites = read_sites(base)
    tracing = Tracing(
        tracer=contents.tracer,
        depth=contents.depth,
        size=contents.size,
        arguments=False,
        keeping=contents.keeping,
    )
    return plan_traced(sites, np.isin(sites.ip, contents.sites), tracing)


def _beside(base: Image, contents: Contents) -> Beside:
    """What is laid in besides probes."""
    from ftpatch.arch import arch_of
    from ftpatch.ftrace.sites import read_sites
    from ftpatch.inject.beside import Beside
    from ftpatch.inject.hook_table import find_hooks
    from ftpatch.inject.runtime import TRACERS
    from ftpatch.watch.plan import pack_tables, require_watchable
    from ftpatch.watch.rules import RULES_SIZE
    from ftpatch.watch.table import TABLE_SIZE

    taken: dict[int, int] = {}
    if contents.tracer:
        sites = read_sites(base)
        mask = np.isin(sites.ip, contents.sites)
        starts = (sites.ip[mask] - np.uint64(sites.lead)).tolist()
        taken = dict(zip(starts, np.add(starts, sites.width[mask]).tolist(), strict=True))
    watches = hooks = b""
    if contents.watches:
        require_watchable(base)
        arch = arch_of(base.elf.skeleton.machine, base.elf.skeleton.elf_class)
        assert arch is not None
        watches = pack_tables(contents.watches, arch.order)
        hooks = find_hooks(base, arch).pack(arch.order)
    return Beside(
        tracer=TRACERS[contents.tracer] if contents.tracer else None,
        sites=taken,
        watches=watches,
        hooks=hooks,
        rules=TABLE_SIZE,
        homes=TABLE_SIZE + RULES_SIZE,
    )
