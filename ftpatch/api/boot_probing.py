# SPDX-License-Identifier: MIT
"""Probes in a kernel on disk, which send through the boot tracer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ftpatch.api.probing import PlacedProbe, Probe, Probed, ProbeWords, parsed_probes
from ftpatch.api.writing import Wait, Writing, copy_of, output_path
from ftpatch.errors import Refused, SiteRefused, UsageError

if TYPE_CHECKING:
    from ftpatch.boot.hooks import Hooks
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image

__all__ = ["hooks_in", "probes_of_kernel", "write_hooks"]

WAY = "pad"
"""The site's own call."""


def hooks_in(sites: Sites, texts: Sequence[str], refused: Refused) -> Hooks:
    """The probes ``texts`` for the boot tracer, without those that are ``refused``. Raises
    UsageError for what has none."""
    from ftpatch.arch import supporting, supports
    from ftpatch.boot.hooks import Hooks
    from ftpatch.probe.kernel_hooks import kernel_hooks

    image = sites.image
    if not image.is_kernel or not supports(sites.arch.name, "kernel_probe", "boot"):
        known = ", ".join(supporting("kernel_probe", "boot"))
        raise UsageError(image.path, f"no probes for {image.kind} of {sites.arch.name}", known)
    definitions = parsed_probes(image, texts, refused, kernel=True)
    hooks, told = kernel_hooks(sites, definitions, refused)
    return Hooks(tuple(hooks), tuple(told))


def write_hooks(
    writing: Writing,
    words: ProbeWords,
    sink: str,
    refused: Refused,
    wait: Wait = lambda _: None,
) -> Probed:
    """Insert probes into a kernel, as ``write_probes`` does into a program."""
    import numpy as np

    from ftpatch.boot.plan import BootTracing, plan_boot
    from ftpatch.update.update import prepare, update

    target = output_path(writing.image, writing.output, writing.in_place)
    hooks: Hooks | None = None

    def plan(sites: Sites) -> Plan:
        nonlocal hooks
        hooks = hooks_in(sites, words.probes, refused)
        if refused.errors and not (words.keep_going and hooks.hooks):
            raise refused.errors.pop()
        return plan_boot(sites, np.zeros(len(sites), bool), BootTracing(sink=sink), hooks)

    with copy_of(writing, target, in_place=writing.in_place) as copy:
        prepared = prepare(writing.image, plan, strip_signature=False)
        if prepared.refused:
            bug, reason = prepared.refused[0]
            raise SiteRefused(writing.image, f"{bug.place}: {reason}")
        if not writing.dry_run:
            wait(copy)
            update(copy, prepared)
    assert hooks is not None
    return Probed(
        probes=tuple(
            PlacedProbe(one["name"], one["text"], one["ip"], WAY, "") for one in hooks.told
        ),
        refused=tuple(refused.errors),
        handled=(),
        cleared="",
        target=target,
        written=None if writing.dry_run else target,
        names=copy.names,
        dropped=prepared.plan.dropped,
        unrecorded=prepared.plan.unrecorded.value,
    )


def probes_of_kernel(image: Image) -> tuple[Probe, ...] | None:
    """The probes of a kernel, by address; None if it has none. Raises InputError for a damaged
    record."""
    from ftpatch.boot.hooks import read_hooks
    from ftpatch.ftrace.sites import read_sites

    if not image.is_kernel:
        return None
    hooked = read_hooks(read_sites(image))
    if hooked is None:
        return None
    return tuple(Probe(one["text"], one["ip"], WAY) for one in hooked.probes)
