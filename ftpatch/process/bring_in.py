# SPDX-License-Identifier: MIT
"""Bringing a runtime into a process: its areas are mapped, filled, protected, and it is started.

    1. from padding          mmap(first area, r-x)               one thread, on its own
    2. from the first area   mprotect its data; mmap the others  one thread, on its own
    3. from there            mprotect theirs; start the runtime  one thread, on its own

The journal tells of each before it is done.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from ftpatch.arch.injected_call import Done, Function, InjectedCall, Step, SystemCall
from ftpatch.errors import InputError
from ftpatch.process.areas import READ_EXECUTE, READ_WRITE, Area
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.page_ends import Padding, lend
from ftpatch.process.process_journal import Entry, keep
from ftpatch.process.send import injected_call_of, send

__all__ = ["CODE", "STACK", "TOKEN", "bring_in", "first_steps", "protecting"]

TOKEN: Final = 16
"""Bytes at the start of each area by which it is recognised."""
CODE: Final = 4 << 12
"""Bytes for injected calls at the start of the first area, its token included."""
STACK: Final = 16 << 12
"""Bytes at the end of the first area to run on, and to tell how far a call came."""
FIXED_NOREPLACE: Final = 0x2 | 0x20 | 0x100000
"""MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE (Linux 4.17)."""
NO_FD: Final = -1


def bring_in(
    target: MemoryTarget,
    entry: Entry,
    areas: Sequence[Area],
    paddings: Iterable[Padding],
    start: Function | None,
) -> Entry:
    """Map the areas, of which the first has room for CODE and STACK bytes; ``start`` the runtime.
    Return what is to be taken out later. Raises InputError; then that is in the journal."""
    call = injected_call_of(entry.arch)
    main, others = areas[0], areas[1:]
    token = secrets.token_bytes(TOKEN)
    words = main.end - 8 * TOKEN
    first: list[Step] = [*first_steps(call, main), Done(words, 1)]
    lent = lend(target, paddings, call, first)
    entry = replace(
        entry,
        token=token,
        lent=lent,
        areas=tuple((one.start, one.size, *one.text) for one in areas),
        words=words,
        code=main.start + TOKEN,
        code_end=main.start + CODE,
    )
    keep(target.process, entry)
    caller = _Caller(target, entry)
    caller.call(lent[0], first, 1)
    steps: list[Step] = [*protecting(call, main), *(_mapped(call, one) for one in others)]
    if others:
        caller.call_next(steps, 2, [main])
        steps = [step for one in others for step in protecting(call, one)]
    if start:
        steps.append(start)
    caller.call_next(steps, 3, others or [main])
    keep(target.process, caller.entry)
    return caller.entry


def _mapped(call: InjectedCall, area: Area) -> SystemCall:
    arguments = (area.start, area.size, READ_EXECUTE, FIXED_NOREPLACE, NO_FD, 0)
    return SystemCall(call.mmap, arguments)


def first_steps(call: InjectedCall, area: Area) -> list[SystemCall]:
    """Map the first area; the words at its end can be written to from the start."""
    end = SystemCall(call.mprotect, (area.end - STACK, STACK, READ_WRITE))
    return [_mapped(call, area), end]


def protecting(call: InjectedCall, area: Area) -> list[SystemCall]:
    """Protect the parts of an area that was filled."""
    return [SystemCall(call.mprotect, one) for one in area.protected]


class _Caller:
    """Makes calls in a process, one after the other."""

    def __init__(self, target: MemoryTarget, entry: Entry) -> None:
        self.target, self.entry = target, entry

    def call_next(self, steps: Sequence[Step], number: int, areas: Sequence[Area]) -> None:
        """Make a call from the first area, after filling areas."""
        token = self.entry.token
        contents = [part for one in areas for part in [(one.start, token), *one.contents]]
        steps = [*steps, Done(self.entry.words, number)]
        call = injected_call_of(self.entry.arch)
        size = len(call.make(steps)) + call.tail_size
        if size > self.entry.code_end - self.entry.code:
            raise InputError(None, f"{self.target.name}: too many libraries", "trace fewer")
        code = self.call(self.entry.code, steps, number, contents)
        room = (len(code) + TOKEN) // TOKEN * TOKEN
        self.entry = replace(self.entry, code=self.entry.code + room)

    def call(
        self,
        at: int,
        steps: Sequence[Step],
        number: int,
        contents: Sequence[tuple[int, bytes]] = (),
    ) -> bytes:
        """Make a call that ends in the step that stores ``number``; return its code."""
        target, words = self.target, self.entry.words
        value = number.to_bytes(8, "little")
        return send(
            self.entry.arch,
            target,
            at,
            steps,
            lambda: target.read(words, 8) == value,
            within=[(low, high) for _, _, low, high in self.entry.areas],
            contents=contents,
        )
