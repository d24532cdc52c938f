# SPDX-License-Identifier: MIT
"""A program in which something was laid in, and is to have something else in its place.

What is laid in is made anew, all of it, from the program as it was before, and what was there goes
into the journal: undo gives it back byte for byte.

    before   | program | stub | block |
    after    | program | other stub | block: stub, block |
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.core.journal import MAX_NESTED
from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.plan import Plan
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_at
from ftpatch.write.undo import plan_undo, restored

__all__ = ["before_laying", "holds_plan", "in_place_of"]


def before_laying(image: Image) -> Image:
    """The program as it was before anything was laid into it. Raises InputError without the journal
    of that, SiteRefused where that cannot be undone."""
    while laid_in_at(image) is not None:
        if not image.blocks:
            reason = "its journal is gone, without which nothing can be added or taken away"
            raise InputError(image.path, reason, "start from the original")
        image = restored(image, plan_undo(image))
    return image


def holds_plan(image: Image, base: Image, plan: Plan) -> bool:
    """Test whether a program holds, byte for byte, what a plan for ``base`` makes of that."""
    data, end = base.data.copy(), len(base.data)
    plan.changes.put(data)
    tail = np.frombuffer(plan.tail, np.uint8)
    own = image.data[: end + len(tail)]
    return bool(np.array_equal(own, np.concatenate([data, tail])))


def in_place_of(image: Image, base: Image, plan: Plan) -> Plan:
    """The plan for ``base`` as one for the program that was made of it. Raises UsageError where the
    journal would hold too many."""
    nested = sum(block.nested for block in image.blocks)
    if nested + 1 >= MAX_NESTED:
        reason = f"changed {nested + 1} times, one on top of another"
        raise UsageError(image.path, reason, "run `ftpatch undo --all`, and lay in all at once")
    end = len(base.data)
    new = base.data.copy()
    plan.changes.put(new)
    old = image.data[:end]
    changes = _differing(plan.changes, old, new)
    earlier = Changes.concat(block.changes for block in image.blocks)
    changes = Changes.concat([changes, _differing(_apart(earlier, changes, end), old, new)])
    left = old != new
    where, within = changes.spread()
    left[where[within]] = False
    at = np.flatnonzero(left)
    single = Changes.of(Kind.LITERAL, at, old[at][:, None], new[at][:, None], NO_OWNER)
    return replace(plan, changes=Changes.concat([changes, single]), length=end)


def _differing(changes: Changes, old: NDArray[np.uint8], new: NDArray[np.uint8]) -> Changes:
    """The places of Changes that differ, from what they hold in ``old`` to what in ``new``."""
    then = replace(changes, old=changes.held(old), new=changes.held(new))
    return then.take((then.old != then.new).any(axis=1))


def _apart(changes: Changes, others: Changes, end: int) -> Changes:
    """Those of the Changes before offset ``end`` that overlap neither ``others`` nor one before
    them."""
    changes = changes.take(changes.offset + changes.width <= end)
    taken = np.zeros(end + 1, bool)
    where, within = others.spread()
    taken[where[within]] = True
    where, within = changes.spread()
    free = np.logical_not((taken[np.minimum(where, end)] & within).any(axis=1)).reshape(-1)
    changes = changes.take(free).ordered()
    ends = np.maximum.accumulate(changes.offset + changes.width)
    return changes.take(changes.offset >= np.concatenate([[0], ends[:-1]])[: len(ends)])
