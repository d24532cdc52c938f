# SPDX-License-Identifier: MIT
"""The stacks of events as text and as JSON: of hits each different one is rendered once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ftpatch.trace.call_frames import StackTable
from ftpatch.trace.hits import Group
from ftpatch.trace.render.cells import Cells, texts

__all__ = ["stack_cells", "stack_lines", "stack_members", "stack_text"]

MORE = "..."
"""Stands for the calls that are not known."""


def stack_lines(event: Group, shown: Callable[[str], str]) -> list[bytes]:
    """Lines below each hit, as ftrace's stack traces have them, with a line end before each;
    ``shown`` makes names printable."""
    assert event.stacks is not None and event.stack is not None
    made: dict[int, bytes] = {}
    for number in np.unique(event.stack).tolist():
        made[number] = stack_text(event.stacks, number, shown).encode()
    return [made[number] for number in event.stack.tolist()]


def stack_cells(event: Group) -> Cells:
    """The members of a JSON object: a list of the calls, and whether there are more."""
    assert event.stacks is not None and event.stack is not None
    distinct, index = np.unique(event.stack, return_inverse=True)
    made = []
    for number in distinct.tolist():
        made.append(f", {json.dumps(stack_members(event.stacks, number))[1:-1]}")
    return texts(made, index)


def stack_text(stacks: StackTable, number: int, shown: Callable[[str], str]) -> str:
    """Lines below an event, a line end before each; ``shown`` makes names printable."""
    stack = stacks.all[number]
    names = [shown(frame.text) for frame in stacks.frames(stack)] + [MORE] * stack.cut
    return "".join(f"\n => {name}" for name in names)


def stack_members(stacks: StackTable, number: int) -> dict[str, Any]:
    """The members of a JSON object: a list of the calls, and whether there are more."""
    stack = stacks.all[number]
    names = [frame.text for frame in stacks.frames(stack)]
    return {"stack": names} | ({"stack_cut": True} if stack.cut else {})
