# SPDX-License-Identifier: MIT
"""The word that asks for the calls that led to an event: ``stack[(DEPTH)][:fp]``.

DEPTH is what bpftrace's ``ustack`` has in its parentheses; ``fp`` is what perf calls the walk along
the frame pointers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ftpatch.core.token import Token, read_number

__all__ = ["FRAMES", "MAX_DEPTH", "Stack", "is_stack", "read_stack", "stack_text"]

MAX_DEPTH = 127
"""Calls of a stack: PERF_MAX_STACK_DEPTH of the kernel's include/uapi/linux/perf_event.h."""
FRAMES = "fp"
WORD = re.compile(r"stack(?:\((?P<depth>[^()]*)\))?(?::(?P<how>.*))?")
_FORM = "write stack, stack(DEPTH), stack:fp or stack(DEPTH):fp"


@dataclass(frozen=True, slots=True)
class Stack:
    """The calls that led to an event, ``depth`` of them at most. ``frames``: found along the frame
    pointers, as perf's ``fp``; else by unwind information, from a copy of the stack."""

    depth: int
    frames: bool = False


def is_stack(word: Token) -> bool:
    """Test whether a word asks for stacks."""
    return word.text == "stack" or word.text.startswith(("stack(", "stack:"))


def read_stack(word: Token, most: int = MAX_DEPTH) -> Stack:
    """Parse one of at most ``most`` calls. Raises UsageError, which names the offending token and
    its column."""
    found = WORD.fullmatch(word.text)
    if found is None:
        raise word.refuse("invalid stack", _FORM)
    depth = most
    if found["depth"] is not None:
        number = read_number(found["depth"])
        if not number or number > most:
            raise word.cut(*found.span("depth")).refuse("invalid depth", f"1 to {most}")
        depth = number
    if found["how"] not in (None, FRAMES):
        hint = f"write {FRAMES}, or nothing"
        raise word.cut(*found.span("how")).refuse("no such way to find the calls", hint)
    return Stack(depth, frames=found["how"] is not None)


def stack_text(stack: Stack, usual: int = MAX_DEPTH) -> str:
    """The word, as ``read_stack`` reads it; ``usual``: the depth that is left out."""
    depth = f"({stack.depth})" if stack.depth != usual else ""
    return f"stack{depth}{f':{FRAMES}' * stack.frames}"
