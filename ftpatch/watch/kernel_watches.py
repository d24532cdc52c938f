# SPDX-License-Identifier: MIT
"""Watches on a kernel's variables, by their link addresses."""

from __future__ import annotations

from collections.abc import Sequence

from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.watch.grammar import CLEAR, EVERY, parse_watch
from ftpatch.watch.variables import Variables
from ftpatch.watch.watches import Watch, apply_requests

__all__ = ["kernel_watches"]

PER_CPU = ("__per_cpu_start", "__per_cpu_end")
"""Around the variables that every processor gets a copy of (include/asm-generic/sections.h)."""
ANY = 1 << 16
"""Number of watches: as many as anybody wants."""


def kernel_watches(image: Image, texts: Sequence[str]) -> list[Watch]:
    """Parse the requests of one command, and find their variables. Raises UsageError for one that
    is malformed, clears, or has no variable of this kernel at one address."""
    requests = [parse_watch(text) for text in texts]
    for text, one in zip(texts, requests, strict=True):
        if one.symbol == EVERY or one.type == CLEAR:
            raise UsageError(None, f"{text}: nothing to clear", "use SYMBOL:rw- or SYMBOL:-w-")
        if one.library:
            raise UsageError(None, f"{text}: {one.library} is not in this image", "name a variable")
        if one.filter or one.stack:
            reason = f"{text}: all accesses of a kernel are recorded, without stacks"
            raise UsageError(None, reason, "use SYMBOL:rw- or SYMBOL:-w-")
    variables = Variables(image)
    low, high = (image.symbols.find(name) for name in PER_CPU)

    requests = [variables.asked(one) for one in requests]

    def resolve(name: str) -> tuple[int, int]:
        address, size = variables.resolve(name)
        if low is not None and high is not None and low <= address < high:
            reason = f"{name}: per-CPU: every processor has its own copy"
            raise UsageError(image.path, reason, "watch a shared variable")
        return address, size

    found, _ = apply_requests([], requests, slots=ANY, resolve=resolve, read_only=True)
    return list(found)
