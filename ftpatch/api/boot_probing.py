# SPDX-License-Identifier: MIT
"""Probes in a kernel on disk, which send through the boot tracer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftpatch.api.planner import Planner
from ftpatch.api.probing import (
    PlacedProbe,
    Probe,
    Probed,
    ProbeWords,
    parsed_probes,
    probes_of,
    write_probes,
)
from ftpatch.api.recording_limits import WILDCARD_LIMIT
from ftpatch.api.writing import Wait, Writing, write_update
from ftpatch.errors import Refused, SiteRefused, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ftpatch.boot.hooks import Hooks
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image

__all__ = ["any_returns", "hooks_in", "insert_probes", "probes_in"]


def hooks_in(sites: Sites, texts: Sequence[str], refused: Refused) -> Hooks:
    """The probes ``texts`` for the boot tracer, without those that are ``refused``. Raises
    UsageError for what has none."""
    from ftpatch.arch import supporting, supports
    from ftpatch.boot.hooks import Hooks
    from ftpatch.probe.kernel_hooks import kernel_hooks

    image = sites.image
    if not image.is_kernel or not supports(sites.arch.name, "kernel_probe", "boot"):
        known = ", ".join(supporting("kernel_probe", "boot"))
        raise UsageError(
            image.path, f"no probes for {image.kind} of {sites.arch.name}", f"supported: {known}"
        )
    definitions = parsed_probes(image, texts, refused, kernel=True)
    hooks, told = kernel_hooks(sites, definitions, refused)
    return Hooks(tuple(hooks), tuple(told))


def any_returns(path: Path, texts: Sequence[str]) -> bool:
    """True if one of the probes ``texts`` is of a kernel's function's return. Raises UsageError for
    one that is none."""
    from ftpatch.image import open_image

    refused = Refused()
    definitions = parsed_probes(open_image(path), texts, refused, kernel=True)
    if refused.errors:
        raise refused.errors[0]
    return any(one.kind == "r" for one in definitions)


def insert_probes(
    writing: Writing, words: ProbeWords, refused: Refused, wait: Wait = lambda _: None
) -> Probed:
    """Insert probes into a program, or into a kernel, as ``write_probes`` does. Raises UsageError
    for options of the other."""
    from ftpatch.image import open_image

    kernel = open_image(writing.image).is_kernel
    others = {
        "--handler": words.handler,
        "--no-optimize": not words.optimize,
        "--regex": words.regex,
        "--limit": words.limit != WILDCARD_LIMIT,
    }
    if not kernel:
        others = {
            "--sink": words.sink,
            "--strip-signature": writing.strip_signature,
            "--sign": writing.sign,
        }
    for option, value in others.items():
        if value:
            other = "programs" if kernel else "kernels"
            raise UsageError(writing.image, f"{option} is for {other}", "remove it")
    if not kernel:
        return write_probes(writing, words, refused, wait)
    return _write_hooks(writing, words, refused, wait)


@dataclass(frozen=True)
class _HookPlanner(Planner):
    """Plan probes; ``refused`` collects the errors of some, and ``found`` gets the others."""

    words: ProbeWords
    refused: Refused
    found: list[Hooks]

    def __call__(self, sites: Sites, missing: set[str] | None = None) -> Plan:
        import numpy as np

        from ftpatch.boot.plan import BootTracing, plan_boot

        hooks, errors = hooks_in(sites, self.words.probes, self.refused), self.refused.errors
        if errors and not (self.words.keep_going and hooks.hooks):
            raise errors.pop()
        self.found.append(hooks)
        none = np.zeros(len(sites), bool)
        return plan_boot(sites, none, BootTracing(sink=self.words.sink), hooks)


def _write_hooks(writing: Writing, words: ProbeWords, refused: Refused, wait: Wait) -> Probed:
    """Insert probes into a kernel."""
    planner = _HookPlanner(words, refused, found=[])
    updated = write_update(writing, planner, wait)
    prepared, (hooks,) = updated.prepared, planner.found
    if prepared.refused:
        bug, reason = prepared.refused[0]
        raise SiteRefused(writing.image, f"{bug.place}: {reason}")
    return Probed(
        probes=tuple(
            PlacedProbe(one["name"], one["text"], one["ip"], one["way"], "") for one in hooks.told
        ),
        refused=tuple(refused.errors),
        handled=(),
        cleared="",
        target=updated.target,
        written=updated.written,
        names=updated.names,
        dropped=prepared.plan.dropped,
        unrecorded=prepared.plan.unrecorded.value,
    )


def probes_in(image: Image) -> tuple[Probe, ...] | None:
    """The probes of a program or a kernel, by address; None if it has none. Raises InputError for
    corrupt tables, a damaged record, or a journal that is gone."""
    from ftpatch.boot.hooks import read_hooks, require_journal

    if not image.is_kernel:
        return probes_of(image)
    hooked = read_hooks(image)
    if hooked is None:
        require_journal(image)
        return None
    return tuple(Probe(one["text"], one["ip"], one["way"]) for one in hooked.probes)
