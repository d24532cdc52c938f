# SPDX-License-Identifier: MIT
"""Check of a kernel's text in a core: findings for what nothing explains, notes on probes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.text_patching import TextPatching
from ftpatch.core.columns import addresses
from ftpatch.ftrace.check.check import CALLEE_KNOWN, TEXT_EXPLAINED
from ftpatch.ftrace.check.findings import Check, Finding, Note
from ftpatch.kcore.explained import Explained, explain
from ftpatch.kcore.in_core import InCore

__all__ = ["check_text", "jump_from", "stretches"]

NEAR = 16
"""Bytes that may lie between two differences of one finding."""
SHOWN = 16
"""Bytes of each side that a finding shows."""


def check_text(kernel: InCore) -> Check:
    """Check it. Raises InputError for a kernel that cannot be read, and where the architecture's
    own changes are not known."""
    found = explain(kernel)
    findings = [*_astray(kernel, found), *_unexplained(kernel, found)]
    return Check(
        findings=tuple(findings),
        ftrace_init=None,
        notes=tuple(_notes(kernel, found)),
        core=kernel.core.path,
    )


def stretches(kernel: InCore, found: Explained) -> list[tuple[int, int]]:
    """Link address and length of each stretch that nothing explains, without sites that are a
    finding of their own."""
    left = found.left
    sites = found.sites
    rows = np.flatnonzero(found.astray)
    start = sites.ip[rows] - np.uint64(sites.lead)
    column = np.arange(sites.code.shape[1], dtype=np.uint64)
    own = (start[:, None] + column)[column < sites.width[rows].astype(np.uint64)[:, None]]
    left = left[~np.isin(left, own)]
    if not len(left):
        return []
    function = kernel.file.kallsyms.groups_of(left)
    cuts = (np.diff(left) > NEAR) | (function[1:] != function[:-1])
    first = np.concatenate([[0], np.flatnonzero(cuts) + 1])
    last = np.append(first[1:], len(left)) - 1
    pairs = zip(left[first].tolist(), left[last].tolist(), strict=True)
    return [(low, high - low + 1) for low, high in pairs]


def _astray(kernel: InCore, found: Explained) -> Iterator[Finding]:
    """A finding for each site that calls what nobody has registered."""
    sites = found.sites
    rows = np.flatnonzero(found.astray)
    places = kernel.file.kallsyms.places(sites.ip[rows])
    for row, place in zip(rows.tolist(), places, strict=True):
        target = sites.targets.name[int(sites.targets.index(sites.addr[[row]])[0])]
        called = kernel.above(int(sites.addr[row]))
        where = "" if target == hex(called) else f" at {called:#x}"
        ip, size = int(sites.ip[row]) - sites.lead, int(sites.width[row])
        message = f"it calls {target}{where}, which no ftrace_ops and no BPF trampoline has"
        yield _finding(kernel, found, (ip, size), CALLEE_KNOWN, place, message)


def _unexplained(kernel: InCore, found: Explained) -> Iterator[Finding]:
    """A finding for each stretch of bytes that no table explains."""
    parts = stretches(kernel, found)
    places = kernel.file.kallsyms.places(np.array([low for low, _ in parts], np.uint64))
    for (low, size), place in zip(parts, places, strict=True):
        number = int(((found.left >= low) & (found.left < low + size)).sum())
        told = "1 byte is" if number == 1 else f"{number} bytes are"
        message = f"{told} not as in vmlinux, nor as any table of the kernel allows"
        target = jump_from(kernel, found, low)
        message += f": a jump to {target}" if target else ""
        yield _finding(kernel, found, (low, size), TEXT_EXPLAINED, place, message)


def jump_from(kernel: InCore, found: Explained, at: int) -> str:
    """Target of a jump, or a call, at a link address: in the kernel's text, in a module, or
    anywhere; empty if there is none."""
    patching: TextPatching = feature(kernel.sites_of_file.arch.name, "text_patching")
    target = patching.jump_target(_bytes(found.text.now(addresses(at), SHOWN)), at)
    if not target:
        return ""
    if found.text.inside(addresses(target))[0]:
        return kernel.file.kallsyms.places(addresses(target))[0]
    above = kernel.above(target)
    return f"{above:#x} {found.callees.name(above)}".rstrip()


def _notes(kernel: InCore, found: Explained) -> Iterator[Note]:
    """Probes in the text; what of it is not in the core."""
    if found.kprobes:
        ip = [kernel.below(probe.address) for probe in found.kprobes]
        places = kernel.file.kallsyms.places(np.array(ip, np.uint64))
        yield Note("kprobe", tuple(map(kernel.above, ip)), tuple(places))
    for at, size in kernel.holes:
        place = kernel.file.kallsyms.places(addresses(at))
        yield Note(f"{size} bytes are not in the core", (kernel.above(at),), tuple(place))


def _bytes(rows: NDArray[np.uint8]) -> bytes:
    return bytes(rows[0].tobytes())


def _finding(
    kernel: InCore, found: Explained, part: tuple[int, int], invariant: str, place: str, words: str
) -> Finding:
    """A finding with the code in memory and in the file, as ftrace_bug shows them; ``part``: link
    address and size."""
    at, size = part
    shown = min(size, SHOWN)
    actual = _bytes(found.text.now(addresses(at), shown)).hex(":")
    expected = found.text.file_code(at, shown).hex(":")
    more = ":..." if size > SHOWN else ""
    return Finding(
        invariant=invariant,
        ip=kernel.above(at),
        symbol=place,
        message=words,
        bug=f" actual:   {actual}{more}\n expected: {expected}{more}",
        bias=kernel.bias if kernel.bias < 1 << 63 else kernel.bias - (1 << 64),
    )
