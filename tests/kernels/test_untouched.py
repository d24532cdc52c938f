# SPDX-License-Identifier: MIT
"""Untouched kernels boot as predicted: the ground on which the other boots are judged."""

from __future__ import annotations

from collections.abc import Callable

from .independent import Vmlinux
from .qemu import Console, kaslr_choices
from .sitecode import announced


def test_untouched_boots(image: Vmlinux, untouched: Callable[[Vmlinux, bool], Console]) -> None:
    for kaslr in kaslr_choices(image.arch):
        seen = untouched(image, kaslr)
        assert seen.reached_panic, seen.tail
        assert seen.ftrace_bug is None
        assert seen.allocating == announced(image)
        if image.arch == "arm64":
            assert ("KASLR enabled" in seen.text) == kaslr
