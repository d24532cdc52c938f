# SPDX-License-Identifier: MIT
"""The rules for accesses of watches, as bytes: four struct watch_rule of stubs/runtime/watch.h.

They are injected behind the table of watches, and no part of a trace: there the texts tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ftpatch.core.byte_order import ByteOrder
from ftpatch.errors import UsageError
from ftpatch.inject.runtime_steps import Row, Step
from ftpatch.layout import constants, offset_of, structure
from ftpatch.watch.access_filter import MAX_STEPS
from ftpatch.watch.table import SLOTS
from ftpatch.watch.watches import Watch

__all__ = ["RULES_SIZE", "pack_rules", "with_rows"]

RULE = structure("watch_rule").itemsize
RULES_SIZE = SLOTS * RULE
"""Bytes."""
STEPS = offset_of("watch_rule", "step")
_STEP = structure("fetch")
CALLS = constants["WATCH_CALLS"]


def pack_rules(watches: Sequence[Watch], order: ByteOrder) -> bytes:
    """Pack the rules of at most SLOTS watches; unused ones are zero."""
    out = b""
    for watch in watches:
        rule = np.zeros(2, order.kind("u4"))
        rule[:] = len(watch.rows), CALLS * bool(watch.stack)
        steps = np.zeros(len(watch.rows), order.record(_STEP))
        if watch.rows:
            steps["op"], steps["what"], steps["value"] = zip(*watch.rows, strict=True)
        out += (rule.tobytes().ljust(STEPS, b"\0") + steps.tobytes()).ljust(RULE, b"\0")
    return out.ljust(RULES_SIZE, b"\0")


def with_rows(
    watches: Sequence[Watch], slots: Sequence[int], raw: bytes, order: ByteOrder
) -> tuple[Watch, ...]:
    """The watches, which are in these ``slots`` of a table, with the steps of their rules. Raises
    UsageError for invalid ones, with a clause that names no place."""
    return tuple(
        replace(watch, rows=_rows(raw[slot * RULE : (slot + 1) * RULE], slot, order))
        for watch, slot in zip(watches, slots, strict=True)
    )


def _rows(raw: bytes, slot: int, order: ByteOrder) -> tuple[Row, ...]:
    count = order.integer(raw[:4])
    if count > MAX_STEPS:
        raise UsageError(None, f"filter {slot} has {count} steps")
    steps = np.frombuffer(raw, order.record(_STEP), count, STEPS)
    columns = (steps[name].tolist() for name in ("op", "what", "value"))
    try:
        return tuple((Step(op), what, value) for op, what, value in zip(*columns, strict=True))
    except ValueError:
        raise UsageError(None, f"filter {slot} has an unknown step") from None
