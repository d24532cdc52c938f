# SPDX-License-Identifier: MIT
"""Injected calls of a program that is held where it begins, as its only thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ftpatch.arch.injected_call import Step, SystemCall

__all__ = ["HeldCall"]


@dataclass(frozen=True, kw_only=True)
class HeldCall:
    """``rest(steps)``: an injected call as InjectedCall makes it, with the same tail, which after
    the steps, also those that fail, makes the call ``resting``; that returns after thirty seconds.
    ``begin(steps, address)``: one without a tail, which goes on at that address with the signals
    blocked that it finds blocked."""

    rest: Callable[[Sequence[Step]], bytes]
    resting: SystemCall
    begin: Callable[[Sequence[Step], int], bytes]
