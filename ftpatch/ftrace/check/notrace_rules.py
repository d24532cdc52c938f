# SPDX-License-Identifier: MIT
"""Code that must not be traced, and so has no site.

Three things say what that is:

    sections and their bounds   noinstr (include/linux/compiler_types.h) and __exit (linux/init.h)
                                are ``notrace`` and a section of their own; entry code, static calls
                                and retpolines are assembly; what runs at EL2 cannot reach
                                ftrace_caller
    _stext, _etext,             is_kernel_text() and is_kernel_inittext(), outside of which ftrace
    _sinittext, _einittext      takes no record: Linux kernel commit da0f622b344b ("ftrace: Check
                                against is_kernel_text() instead of kaslr_offset()") (in v6.15)
    ftrace's own entries        a site in what sites call would call itself

Debian's kernels (6.1, 6.12 and 7.2 for amd64 and arm64, 6.1 for i386) and their modules have no
site in any of them. They do have sites in .kprobes.text (arm64 6.1: 54), .cpuidle.text (noinstr
since v6.3), .irqentry.text, .softirqentry.text, .sched.text, .spinlock.text and .init.text. Nor is
the kprobe blacklist (NOKPROBE_SYMBOL, ``__start_kprobe_blacklist``) a list of what ftrace leaves
alone: of its functions, 47 to 66 in each of those kernels have a site.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import addresses
from ftpatch.ftrace.callees import CALLERS
from ftpatch.ftrace.check.findings import Broken
from ftpatch.ftrace.sites import Sites

__all__ = ["in_notrace"]

BOUNDS = {
    "noinstr code": ("__noinstr_text_start", "__noinstr_text_end"),
    "entry code": ("__entry_text_start", "__entry_text_end"),
    "static call trampolines": ("__static_call_text_start", "__static_call_text_end"),
    "retpolines": ("__indirect_thunk_start", "__indirect_thunk_end"),
    "code that runs before paging": ("__hyp_idmap_text_start", "__hyp_idmap_text_end"),
    "hypervisor code": ("__hyp_text_start", "__hyp_text_end"),
}
"""Symbols of include/asm-generic/vmlinux.lds.h and the architectures' vmlinux.lds.S."""
SECTIONS = {
    ".noinstr.text": "noinstr code",
    ".entry.text": "entry code",
    ".exit.text": "exit code",
    ".static_call.text": "static call trampolines",
    ".altinstr_replacement": "code that is copied before it runs",
    ".plt": "code that the module loader generates",
    ".text.ftrace_trampoline": "code that the module loader generates",
}
"""Sections of a module."""
TEXT = (("_stext", "_etext"), ("_sinittext", "_einittext"))
STUBS = (
    *CALLERS,
    "ftrace_stub",
    "ftrace_stub_graph",
    "ftrace_stub_direct_tramp",
    "ftrace_graph_caller",
    "return_to_handler",
)
"""Entries of ftrace (arch/*/kernel/ftrace*.S, entry-ftrace.S), besides the compiled-in callee."""


def in_notrace(sites: Sites) -> Broken:
    """Sites in such code; each is named by the first that it is in."""
    what = np.zeros(len(sites), np.intp)
    words = [""]

    def mark(mask: NDArray[np.bool_], text: str) -> None:
        words.append(text)
        what[mask & (what == 0) & (sites.offset >= 0)] = len(words) - 1

    for name, start, size in _ranges(sites):
        mark(sites.ip - addresses(start) < addresses(size), f"the site is in {name}")
    mark(_beside_text(sites), "the site is outside of the kernel's text")
    rows = np.flatnonzero(what)
    return sites.ip[rows], [words[i] for i in what[rows].tolist()]


def _ranges(sites: Sites) -> list[tuple[str, int, int]]:
    """(what it is, address, bytes) of all such code."""
    image, found = sites.image, []
    symbols = image.symbols
    if image.is_kernel:
        for name, bounds in BOUNDS.items():
            low, high = (symbols.find(bound) for bound in bounds)
            if low is not None and high is not None and low < high:
                found.append((name, low, high - low))
    elif image.has_table:
        for section in image.elf.sections:
            if section.name in SECTIONS:
                found.append((SECTIONS[section.name], section.address, section.size))
    for name in (*sites.arch.mcount_names, *STUBS):
        for row in symbols.rows_named(name).tolist():
            words = f"{name}, which sites call"
            found.append((words, int(symbols.value[row]), int(symbols.size[row])))
    return found


def _beside_text(sites: Sites) -> NDArray[np.bool_]:
    """Sites of a kernel outside of its own bounds; none where a bound is missing."""
    inside = np.zeros(len(sites), bool)
    for bounds in TEXT:
        low, high = (sites.image.symbols.find(bound) for bound in bounds)
        if not sites.image.is_kernel or low is None or high is None:
            return inside & False
        inside |= (sites.ip >= low) & (sites.ip < high)
    return ~inside
