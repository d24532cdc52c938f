# SPDX-License-Identifier: MIT
"""Taking everything out of a process again that its journal tells of.

    1. the call sites get their old code back           all threads stopped
       the signal of traps is given back, once no       all threads stopped, again until it is so
       thread handles one; then calls about signals
       are led to it no more                            all threads stopped
       no unwinder that is loaded from now on asks      all threads stopped
    2. no thread is in the runtime, or will be          all threads stopped, again until it is so
       the return addresses that it replaced are put back on the stacks that no thread walks up
       and when that is all of them, the slots of unwinders
    3. its memory is unmapped                           by injected calls, the last from padding
    4. the padding gets its old bytes back              all threads stopped

What a thread still needs stays mapped, and is told of.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.injected_call import Done, Step, SystemCall
from ftpatch.arch.thread_state import thread_state_of
from ftpatch.core.changes import Changes
from ftpatch.errors import InputError
from ftpatch.process.bring_in import STACK
from ftpatch.process.callers import Callers
from ftpatch.process.linked import put_back_linked, signs
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.own_signal import give_back_signal, is_taken
from ftpatch.process.page_ends import Padding, lend, paddings_of
from ftpatch.process.pending import (
    PutBack,
    mapped_by,
    put_back,
    read_runtime,
    replaced,
    slots_used,
)
from ftpatch.process.process_journal import Entry, keep
from ftpatch.process.register_sets import thread_pointer_of
from ftpatch.process.rewrite import Pause, rewrite, when_stopped
from ftpatch.process.send import injected_call_of, send
from ftpatch.process.standing import Unwound, is_used
from ftpatch.process.started import linker_span
from ftpatch.process.stop import World
from ftpatch.process.walks import Slot, Walks, late_slots, put_slots, put_slots_back

__all__ = ["TakenOut", "give_back", "restore_code", "take_out"]

GONE: Final = 2
"""Value of the word that tells that the memory is unmapped."""
LIMIT: Final = 2.0
"""Processor seconds to search memory."""
MANY: Final = 100
"""Steps of a call."""
WORD: Final = 8
STEP: Final = 16 << 20
"""Bytes to search at a time."""
NEAR: Final = 64 << 10
"""Bytes on a stack: signals' frames, and what handles them."""
RED_ZONE: Final = 128
"""Bytes below a stack pointer that are used yet (psABI, "The Stack Frame")."""
Span = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class TakenOut:
    """The outcome: ``sites`` that got their old code back; ``foreign``: addresses that held
    neither old nor new code and were left alone; ``returns`` that were put back; ``left``: why
    something stays mapped, empty if nothing does; ``gone``: nothing that the journal tells of was
    there any more; ``pauses`` of the process; ``probes``: how many there were, some of which an
    earlier attempt may have taken out."""

    sites: int
    foreign: tuple[int, ...] = ()
    returns: int = 0
    left: str = ""
    gone: bool = False
    pauses: tuple[Pause, ...] = ()
    probes: int = 0


def restore_code(
    target: MemoryTarget, entry: Entry, changes: Changes, wait: float
) -> tuple[int, tuple[int, ...], Pause]:
    """Put the old code of ``changes`` back wherever the new one stands; return how many, the
    addresses where neither stands, and the pause. Raises InputError."""
    held, there = target.held(changes)
    is_new = there & (held == changes.new).all(axis=1)
    is_old = there & (held == changes.old).all(axis=1)
    foreign = changes.offset[there & ~is_new & ~is_old]
    back = changes.take(is_new & ~is_old).reverted()
    pause = Pause()
    if len(back):
        pause = rewrite(entry.arch, target, back, wait=wait)
    return len(back), tuple(foreign.tolist()), pause


def take_out(target: MemoryTarget, entry: Entry, loaded: Sequence[Loaded], wait: float) -> TakenOut:
    """Take everything out that ``entry`` tells of. ``loaded``: the images of the process. Raises
    InputError for what could not be done; all of it can be done again then."""
    # Whoever is in the padding yet, is about to map something.
    given = _give_back(target, entry, wait)
    areas = _still_there(target, entry)
    if not areas:  # it has started another program, or an earlier attempt came this far
        _require_unchanged(target, entry)
        return TakenOut(sites=0, gone=True, pauses=tuple(given))
    unwound = _unwound(target, entry, loaded)
    asks = np.isin(entry.changes.offset, entry.led)
    sites, foreign, pause = restore_code(target, entry, entry.changes.take(~asks), wait)
    given.append(pause)
    if asks.any():
        if is_taken(target, entry):
            given_back = give_back_signal(target, entry, unwound, wait)
            if given_back is None:
                left = f"a thread was in the tracer, or about to handle a trap, for {wait:g} s"
                return TakenOut(sites=sites, foreign=foreign, left=left, pauses=tuple(given))
            given.append(given_back)
        _, more, pause = restore_code(target, entry, entry.changes.take(asks), wait)
        foreign += more
        given.append(pause)
    pauses, found = given, PutBack()
    live: list[tuple[int, int]] = []
    slots, led = list(entry.slots), list[Slot]()
    if entry.exports:
        late = late_slots(target, entry, linker_span(target.process, loaded), wait)
        if late is None:
            left = f"a thread was in the dynamic linker for {wait:g} s"
            return TakenOut(sites=sites, foreign=foreign, left=left, pauses=tuple(pauses))
        slots += [one for one in late[0] if one not in slots]
        pauses.append(late[1])
        loaded, _ = loaded_images(target.process)
    walks = Walks(target, entry, loaded) if slots else None
    linked = bool(thread_state_of(entry.arch).link)
    signed = linked and bool(entry.returns) and signs(entry.arch, target, entry.changes)
    read_runtime(entry.arch, target, entry.runtime)  # once, so that nothing is loaded in the pause

    def attempt(world: World) -> bool:
        nonlocal found
        areas[:] = [area for area in areas if _is_headed(target, entry, area)]
        spans = [(start, start + size) for start, size, _, _ in areas]
        if is_used(entry.arch, world, target, spans, unwound):
            return False
        held = read_runtime(entry.arch, target, entry.runtime) if _has_main(areas, entry) else None
        kept: list[tuple[int, int]] = []
        if walks is not None and walks.are_there and held is not None:
            kept = walks.under_way(world, replaced(held, entry.returns))
        if not kept:
            led[:] = put_slots_back(target, slots)
        if held is not None:
            if linked:
                now = put_back_linked(
                    entry.arch, world, target, held, entry.returns, kept, signed=signed
                )
            else:
                now = put_back(entry.arch, target, held, entry.returns, kept)
            found = replace(now, done=found.done + now.done, moved=found.moved or now.moved)
        live[:] = [(thread_pointer_of(world, thread), thread.sp) for thread in world.threads]
        return not found.signed and not kept

    pause_ = when_stopped(target, wait, attempt)
    out = TakenOut(sites=sites, foreign=foreign, returns=found.done)
    if pause_ is None:
        left = f"a thread was in the tracer for {wait:g} s"
        if found.signed:
            left = f"calls were pending for {wait:g} s whose return addresses are signed"
        return replace(out, left=left, pauses=tuple(pauses))
    pauses.append(pause_)
    has_main = _has_main(areas, entry)
    mapped = mapped_by(entry.arch, target, entry.runtime) if has_main else []
    own = [(start, start + size) for start, size, *_ in (*mapped, *areas)]
    if found.moved and _is_somewhere(target, entry, own, live):
        put_slots(target, led)  # what returns there may be walked over
        left = "calls that were pending may return on a stack that was copied"
        return replace(out, left=left, pauses=tuple(pauses))
    if areas:
        entry = replace(entry, lent=None)
        _unmap(target, entry, areas, mapped, paddings_of(loaded), wait, unwound=unwound)
    return replace(out, pauses=tuple(pauses))


def _unwound(target: MemoryTarget, entry: Entry, loaded: Sequence[Loaded]) -> Unwound:
    def pending() -> Mapping[int, int]:
        held = read_runtime(entry.arch, target, entry.runtime) if entry.returns else None
        return {} if held is None else replaced(held, entry.returns)

    return Unwound(Callers(entry.arch, target, loaded), pending)


def _require_unchanged(target: MemoryTarget, entry: Entry) -> None:
    """Raise InputError where code still leads to memory that is not there as the journal has it."""
    held, there = target.held(entry.changes)
    led = there & (held == entry.changes.new).all(axis=1)
    if (led & (entry.changes.new != entry.changes.old).any(axis=1)).any():
        raise InputError(
            None,
            f"{target.name}: the journal is wrong: the tracer is not where it says, and sites call "
            "one",
            "nothing was changed; `ftpatch check --pid` lists these sites",
        )


def _has_main(areas: Sequence[Span], entry: Entry) -> bool:
    return bool(areas) and areas[0] == entry.areas[0]


def _still_there(target: MemoryTarget, entry: Entry) -> list[Span]:
    """The areas that are mapped: an exec, or an earlier attempt, may have unmapped them, or they
    never were, and others are in their place. One that was not filled any more is still zero."""
    fresh = {
        one.start: one.end
        for one in read_maps(target.process)
        if one.executable and not one.writable and not one.inode and not one.path
    }
    out = []
    for area in entry.areas:
        start, size = area[:2]
        head = target.read(start, len(entry.token))
        whole = fresh.get(start) in (start + size, start + size - STACK)
        if entry.token and (head == entry.token or (head == bytes(len(entry.token)) and whole)):
            out.append(area)
    return out


def _is_headed(target: MemoryTarget, entry: Entry, area: Span) -> bool:
    """Whether an area that was there begins as it did: with an exec, the memory is gone for whoever
    opened it before."""
    head = target.read(area[0], len(entry.token))
    return head in (entry.token, bytes(len(entry.token)))


def _give_back(target: MemoryTarget, entry: Entry, wait: float) -> list[Pause]:
    """Put the old bytes of the padding back when no thread is in it."""
    if not _is_lent(target, entry):
        return []
    pause = when_stopped(target, wait, lambda world: give_back(target, entry, world))
    if pause is None:
        raise _busy(target, wait)
    return [pause]


def _is_lent(target: MemoryTarget, entry: Entry) -> bool:
    """Whether an injected call of ours stands in the padding, and not what an exec brought."""
    if entry.lent is None:
        return False
    address, old, code = entry.lent
    return old[: len(code)] != code and target.read(address, len(code)) == code


def give_back(target: MemoryTarget, entry: Entry, world: World) -> bool:
    """Put the old bytes of the padding back; False if a thread of the stopped process is in it."""
    if entry.lent is None or not _is_lent(target, entry):
        return True
    address, old, _ = entry.lent
    if is_used(entry.arch, world, target, [(address, address + len(old))]):
        return False
    target.write(address, old)
    return True


def _unmap(
    target: MemoryTarget,
    entry: Entry,
    areas: Sequence[Span],
    mapped: Sequence[tuple[int, int, int]],
    paddings: Sequence[Padding],
    wait: float,
    *,
    unwound: Unwound,
) -> None:
    """Unmap the runtime's memory, and then its areas, the one with the calls last. Raises
    InputError."""
    call = injected_call_of(entry.arch)
    steps = list[Step]()
    for start, size, word in mapped:
        # Zero before the thread can do anything else: a second attempt must not find it.
        steps += [SystemCall(call.munmap, (start, size)), *([Done(word, 0)] if word else [])]
    has_main = _has_main(areas, entry)
    others = areas[1:] if has_main else areas
    if has_main:
        steps += [SystemCall(call.munmap, (start, size)) for start, size, _, _ in others]
        for row in range(0, len(steps), MANY):
            target.write(entry.words, bytes(8))
            send(
                entry.arch,
                target,
                entry.areas[0][0] + len(entry.token),
                [*steps[row : row + MANY], Done(entry.words, GONE)],
                lambda: target.read(entry.words, 8) == GONE.to_bytes(8, "little"),
            )
            _until_left(target, entry, areas[0], unwound, wait)
    for area in areas[:1] if has_main else areas:
        _unmap_last(target, entry, area, paddings, wait)


def _until_left(
    target: MemoryTarget, entry: Entry, area: Span, unwound: Unwound, wait: float
) -> None:
    """Wait until no thread is in an area. Raises InputError."""
    spans = [(area[0], area[0] + area[1])]

    def attempt(world: World) -> bool:
        return not is_used(entry.arch, world, target, spans, unwound)

    if when_stopped(target, wait, attempt) is None:
        raise _busy(target, wait)


def _unmap_last(
    target: MemoryTarget, entry: Entry, area: Span, paddings: Sequence[Padding], wait: float
) -> None:
    """Unmap an area, from padding. Raises InputError."""
    call = injected_call_of(entry.arch)
    last = [SystemCall(call.munmap, area[:2])]
    lent = replace(entry, lent=lend(target, paddings, call, last))
    assert lent.lent is not None
    keep(target.process, lent)
    send(
        entry.arch,
        target,
        lent.lent[0],
        last,
        lambda: target.read(area[0], len(entry.token)) != entry.token,
    )
    _give_back(target, lent, wait)


def _busy(target: MemoryTarget, wait: float) -> InputError:
    return InputError(
        None,
        f"{target.name}: a thread stayed in an injected call for {wait:g} s",
        "run `ftpatch undo --pid` again",
    )


def _is_somewhere(
    target: MemoryTarget,
    entry: Entry,
    own: Sequence[tuple[int, int]],
    live: Sequence[tuple[int, int]],
) -> bool:
    """Test whether the address of return_to_handler stands in memory that is written to, other than
    on a stack, where every place is known that waits for it: a stack may have been copied. ``own``:
    what the runtime has mapped; ``live``: thread pointer and stack pointer of each thread."""
    deadline = time.thread_time() + LIMIT
    word = np.uint64(entry.returns)
    slots: NDArray[np.uint64] | None = None
    for one in read_maps(target.process):
        if not one.writable or one.shared or one.path == b"[stack]":
            continue
        if any(low <= one.start < high for low, high in own):
            continue
        # libc has a thread's pointer above its stack, where nothing below the top matters.
        tops = [sp for tp, sp in live if one.start <= sp < tp < one.end]
        low = max(min(tops, default=0) - RED_ZONE, one.start)
        for start in range(low // WORD * WORD, one.end, STEP):
            held = target.read(start, min(STEP, one.end - start)) or b""
            rows = np.flatnonzero(np.frombuffer(held, np.uint64, len(held) // WORD) == word)
            if len(rows):
                if slots is None:
                    slots = slots_used(entry.arch, target, entry.runtime)
                found = rows.astype(np.uint64) * np.uint64(WORD) + np.uint64(start)
                near = NEAR if one.path else one.end - one.start
                if not _are_near(found, slots, near):
                    return True
            if time.thread_time() > deadline:
                return True
    return False


def _are_near(addresses: NDArray[np.uint64], slots: NDArray[np.uint64], near: int) -> bool:
    """Test whether all addresses are on stacks on which calls were traced: left there in a register
    that was saved, by a signal or by the runtime."""
    low = np.searchsorted(slots, addresses - np.minimum(addresses, np.uint64(near)))
    high = np.searchsorted(slots, addresses + np.uint64(near))
    return bool((low < high).all())
