# SPDX-License-Identifier: MIT
"""One image updated: read it, plan, verify all, write all. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import arch_of
from ftpatch.core.changes import Changes, Kind
from ftpatch.elf.properties import cleared_property
from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.ftrace_bug import FtraceBug
from ftpatch.ftrace.plan import Plan
from ftpatch.ftrace.site_code import written
from ftpatch.ftrace.sites import Sites, read_sites
from ftpatch.image import Image, open_image
from ftpatch.image.unsigned import unsigned_header
from ftpatch.io.output import Copy
from ftpatch.update.recheck import recheck
from ftpatch.update.refused_sites import refused_sites
from ftpatch.write.undo import require_undoable
from ftpatch.write.verify import verify_image
from ftpatch.write.write import updated, write

__all__ = [
    "Outcome",
    "Prepared",
    "cleared_name",
    "lay_in",
    "prepare",
    "prepare_bare",
    "prepare_sites",
    "update",
]


VERSIONS = ("__versions", "__version_ext_names")
"""Sections of CONFIG_MODVERSIONS, up to v6.13 and since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of an update: counts of sites and records, the sites that were refused (then
    nothing was written) with the reason, and the output. ``new``, ``undefined`` and ``unrecorded``
    are the plan's; ``versioned``: the module has a CRC for each symbol that it takes from
    elsewhere, and so none for an undefined one that is new; ``cleared``: a property that the output
    has no longer; ``sites`` counts all of the image, ``calls`` the PLT entries that call a
    tracer."""

    sites: int
    selected: int
    changed: int
    unchanged: int
    dropped: int
    restored: int
    refused: tuple[tuple[FtraceBug, str], ...] = ()
    written: Path | None = None
    plain: bool = False
    new: bytes = b""
    undefined: str = ""
    versioned: bool = False
    cleared: str = ""
    ip: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64), repr=False)
    places: tuple[str, ...] = ()
    unrecorded: str = ""
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A verified plan for an image, which may have no ``sites``; ``refused`` are the sites that
    stand in its way."""

    image: Image
    sites: Sites | None
    plan: Plan
    refused: tuple[tuple[FtraceBug, str], ...]

    def outcome(self, target: Path | None, *, verbose: bool = False) -> Outcome:
        """Summarize the outcome; ``target`` is where it was written. ``verbose``: with every
        site."""
        plan, refused = self.plan, bool(self.refused)
        every = np.empty(0, np.uint64) if self.sites is None else self.sites.ip
        ip = plan.changes.owner[plan.changes.kind == Kind.CODE]
        if plan.calls:
            ip = ip[np.isin(ip, every)]
        places = self.image.kallsyms.places(ip) if verbose and not refused else []
        return Outcome(
            sites=len(every),
            selected=plan.selected,
            changed=0 if refused else plan.changed,
            unchanged=plan.unchanged,
            dropped=0 if refused else plan.dropped,
            restored=0 if refused else plan.restored,
            refused=self.refused,
            written=None if refused else target,
            plain=not len(plan.changes),
            new=plan.new,
            undefined=plan.undefined if plan.changed else "",
            versioned=any(self.image.elf.section(name) for name in VERSIONS),
            cleared="" if refused else cleared_name(self.image, plan.changes),
            ip=ip if places else np.empty(0, np.uint64),
            places=tuple(places),
            unrecorded=plan.unrecorded,
            calls=0 if refused else plan.calls,
        )


def cleared_name(image: Image, changes: Changes) -> str:
    """Name the program property that Changes clear; empty where they clear none."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    return cleared_property(image.elf, arch.shadow_stack, changes) if arch else ""


def prepare(path: Path, plan: Callable[[Sites], Plan], *, strip_signature: bool) -> Prepared:
    """Plan an update of the image at ``path`` and verify it. Raises what the plan raises,
    UsageError where a signature would have to go, and InputError where the result would not be what
    was planned."""
    image = open_image(path)
    image.require_writable()
    return prepare_sites(image, read_sites(image), plan, strip_signature=strip_signature)


def prepare_sites(
    image: Image, sites: Sites, plan: Callable[[Sites], Plan], *, strip_signature: bool = False
) -> Prepared:
    """The same for an image that is open, and its sites."""
    planned = plan(sites)
    if len(planned.changes) and image.signed:
        if not strip_signature:
            raise _signed(image)
        planned = replace(
            planned, changes=Changes.concat([planned.changes, unsigned_header(image)])
        )
    verdict = verify_image(image, planned.changes, sites.arch.align, written(image, sites.arch))
    refused = () if verdict.passed else tuple(refused_sites(sites, verdict, planned.action))
    if len(planned.changes) and not refused:
        require_undoable(image)
    if image.is_relocatable and len(planned.changes) and not refused:
        length = _length(image, planned)
        changed = updated(image, planned.changes, length=length, tail=planned.tail)
        recheck(sites, planned, changed)
    return Prepared(image, sites, planned, refused)


def _signed(image: Image) -> UsageError:
    what, how = "kernel", "or --sign to sign it anew (Secure Boot rejects an unsigned kernel)"
    if image.is_module:
        what, how = "module", "(an unsigned module taints the kernel, or is rejected)"
    return UsageError(
        image.path,
        f"the {what} is signed, and the signature would not match the changed {what}",
        f"use --strip-signature {how}",
    )


def prepare_bare(image: Image, plan: Plan) -> Prepared:
    """The same for a plan that changes no site. Raises InputError where the image does not hold
    what was expected, SiteRefused where its journal cannot be undone."""
    image.require_writable()
    require_undoable(image)
    if not verify_image(image, plan.changes, 1).passed:
        raise InputError(image.path, "its headers or its code are not what was expected")
    return Prepared(image, None, plan, ())


def update(copy: Copy, prepared: Prepared, sign: Callable[[int], None] = lambda _: None) -> None:
    """Write what was prepared into ``copy`` and let it appear; ``sign`` is given the descriptor of
    what is complete. Raises OutputError, and what ``sign`` raises."""
    image, plan = prepared.image, prepared.plan
    write(copy, image, plan.changes, length=_length(image, plan), tail=plan.tail, sign=sign)


def lay_in(copy: Copy, image: Image, plan: Plan) -> None:
    """Prepare a plan that changes no site, and write it into ``copy``. Raises what that raises, and
    OutputError where it cannot be written."""
    update(copy, prepare_bare(image, plan))


def _length(image: Image, plan: Plan) -> int | None:
    """Offset of a signature to strip, or of what the plan replaces; None without one."""
    if plan.length is not None:
        return plan.length
    return image.end if len(plan.changes) and image.end < len(image.data) else None
