# SPDX-License-Identifier: MIT
"""Stopping a process, or one thread of it, so that it goes on as if nothing had been.

    seize all | ask all to stop | wait for each, set an ended system call up again | ... | let go
              ^ since                                                                         ^
              '------------------------------- pause_ns -------------------------------------'

A new thread can only be made by one that runs yet: what is listed after the last one stopped, is
stopped in turn, until nothing is new. If ftpatch is killed meanwhile, the kernel lets all of them
go, with what has been set up: PTRACE_O_EXITKILL is never set.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from ftpatch.arch.signal_frames import SignalFrames
from ftpatch.arch.thread_state import Before, ThreadState, registers_in
from ftpatch.errors import InputError
from ftpatch.process.process import STARTED, Process, read_status, threads_of
from ftpatch.process.ptrace import (
    Ended,
    Stop,
    block_signals,
    detach,
    get_mask,
    get_registers,
    go_on,
    interrupt,
    next_stop,
    reap,
    seize,
    set_registers,
)
from ftpatch.process.ptracer import Ptracer, undisturbed
from ftpatch.process.refusals import not_stopped, require_may_stop, why_not_seized
from ftpatch.process.thread import Thread, is_signalled

__all__ = ["World", "one_stopped", "stopped", "system_call_of"]

FIRST: Final = 0.02
"""Seconds to wait for the thread that is preferred, before others are asked as well."""
EAGER: Final = 0.002
"""Seconds of looking again at once; after that with a pause of POLL seconds in between."""
POLL: Final = 0.0005
CODE, STACK = 26, 28
"""Fields of /proc/PID/stat: startcode to startstack."""
RETRIES: Final = 10
"""Number of times that a refused request is made again."""
STARVED: Final = 4.0
"""Seconds after the deadline to wait while only a processor is lacking."""
LATER: Final = 1.0
"""Seconds after the deadline at which a request that blocks is given up."""

T = TypeVar("T")


class World:
    """A stopped process. ``threads``: those that are stopped, which is all of them, but for
    ``one_stopped``; ``since``: monotonic nanoseconds when the first one stopped."""

    def __init__(self, process: Process, state: ThreadState, wait: float) -> None:
        self.process = process
        self.state = state
        self.wait = wait
        self.threads: list[Thread] = []
        self.since = 0
        self.pause_ns = 0
        """Nanoseconds from then until the last one went on; 0 while they are stopped."""
        self.frames: dict[int, SignalFrames] = {}
        """Signal frames by thread number, once that was asked (standing.py)."""
        self._deadline = time.monotonic() + wait
        self._waiting: dict[int, Before] = {}
        self._seized: list[int] = []
        self._ptracer = Ptracer(self._unblock)

    def do(self, function: Callable[[], T]) -> T:
        """Call a function in the thread of ours that traces: only there requests of ptrace are
        valid. Return or raise what it does."""
        return self._ptracer.do(function)

    def deliver(self, thread: Thread) -> None:
        """Let a stopped thread take the signals that it is about to handle; it stops again where
        the handler begins. Raises InputError if it ends, or does not stop."""
        try:
            self.do(lambda: self._deliver(thread))
        except Ended:
            raise self._ended(thread) from None

    def mask_of(self, thread: Thread) -> int:
        """The signals that a stopped thread blocks. Raises InputError if it ends."""
        try:
            return self.do(lambda: get_mask(thread.tid))
        except ProcessLookupError:
            raise self._ended(thread) from None

    def _ended(self, thread: Thread) -> InputError:
        return InputError(None, f"{self.process}: thread {thread.tid} has ended")

    # What follows is done by the thread that traces.

    def _seize(self, tid: int) -> bool:
        """Begin to trace a thread; False for one that has ended, or is ending."""
        for last in (False,) * RETRIES + (True,):
            try:
                seize(tid)
            except Ended:
                return False
            except PermissionError:
                # One of those that we trace has started another program, and has this number now.
                if read_status(self._place(tid)).get("TracerPid") == str(self._ptracer.tid):
                    break
                reason = why_not_seized(self.process, tid)
                if reason is None:
                    return False
                if last:
                    raise reason from None
                time.sleep(POLL)  # it may only be in between
            else:
                break
        self._waiting[tid] = ()
        self._seized.append(tid)
        return True

    def _seize_new(self) -> list[int]:
        """Seize all threads that are not yet."""
        known = {thread.tid for thread in self.threads} | self._waiting.keys()
        # The first thread comes last, and goes on first: where it is traced, ignored signals wake
        # threads, and they would see EINTR if they were not.
        listed = sorted(self._listed(), key=lambda tid: tid == self.process.pid)
        return [tid for tid in listed if tid not in known and self._seize(tid)]

    def _place(self, tid: int) -> Path:
        return self.process.place / "task" / str(tid)

    def _listed(self) -> list[int]:
        return threads_of(self.process.place)

    def _ask(self, tids: list[int]) -> None:
        if self.state.asks_before:
            for tid in tids:
                self._waiting[tid] = system_call_of(self._place(tid))
        if not self.since:
            self.since = time.monotonic_ns()
        for tid in tids:
            with suppress(Ended):
                interrupt(tid)

    def _wait(self, *, enough: int = 1 << 30, until: float = 0.0) -> None:
        """Wait for all that were asked, or for ``enough`` threads, or ``until``."""
        begun = time.monotonic()
        until = until or self._deadline
        while self._waiting and len(self.threads) < enough:
            for tid in list(self._waiting):
                self._look(tid)
            if not self._waiting or len(self.threads) >= enough:
                return
            now = time.monotonic()
            if now > until and not (until == self._deadline and self._are_starved(now)):
                return
            if now < begun + EAGER:
                time.sleep(0)
            else:
                self._reap()
                time.sleep(POLL)

    def _are_starved(self, now: float) -> bool:
        """Whether all threads that were not seen to stop would be, if they, or we, had a
        processor."""
        if now > self._deadline + STARVED:
            return False
        states = (read_status(self._place(tid)).get("State", "") for tid in self._waiting)
        return all(state.startswith(("R", "t")) for state in states)

    def _reap(self) -> None:
        """Let a process that starts another program do so: it waits for its threads that have
        ended and that we trace."""
        for tid in list(self._seized):
            reap(tid)

    def _look(self, tid: int) -> None:
        """Take a thread's stop, if it has come to one."""
        try:
            if (group_stop := self.come(tid)) is None:
                return
            registers = self.set_up(tid)
        except Ended:
            reap(tid)
            del self._waiting[tid]
            return
        before = self._waiting.pop(tid)
        self.threads.append(
            Thread(
                process=self.process,
                tid=tid,
                state=self.state,
                registers=registers,
                group_stop=group_stop,
                before=before,
            )
        )

    def come(self, tid: int) -> int | None:
        """The signal of the stop to which a thread has come, 0 where it was asked to; None if it
        runs yet. Signals that come first are delivered. Raises Ended."""
        while (found := next_stop(tid)) is not None:
            event, number = found
            if event == Stop.STOP:
                return 0 if number == signal.SIGTRAP else number
            if not event:
                # A signal that is ignored wakes a thread nevertheless, if it is traced.
                self.set_up(tid, number)
            go_on(tid, 0 if event else number)
        return None

    def set_up(self, tid: int, number: int = 0) -> np.void:
        """Read a thread's registers, and set up the system call that was interrupted, at once: we
        may be killed before it goes on. ``number``: the signal that it stopped for. Raises
        Ended."""
        layout = self.state.layout
        try:
            held = get_registers(tid, layout.itemsize)
            if len(held) != layout.itemsize:
                raise InputError(
                    None,
                    f"{self.process}: thread {tid} runs 32-bit code",
                    "only processes of the machine's own kind can be stopped",
                )
            registers = registers_in(layout, held)
            last = self.process.let_go.get(tid)
            if (last is not None and self.state.unmade(registers, last)) or self.state.again(
                registers,
                self._waiting.get(tid, ()),
                lambda: is_signalled(self._place(tid), number),
            ):
                set_registers(tid, registers.tobytes())
        except ProcessLookupError:
            raise Ended from None
        return registers

    def stop_all(self) -> None:
        """Stop all threads. Raises InputError."""
        program = _program(self.process)
        while self._seize_new():
            pass
        while True:
            self._ask(list(self._waiting))
            self._wait()
            if self._waiting:
                raise not_stopped(self.process, list(self._waiting), self.wait)
            if not self._seize_new():
                break
        now = _program(self.process)
        if not self.threads:
            raise InputError(None, f"{self.process}: it has ended")
        if (program and now and program != now) or self._is_another():
            raise InputError(
                None, f"{self.process}: it has just started another program", "try again"
            )

    def _is_another(self) -> bool:
        """Whether the first thread is one that has started another program meanwhile: it takes over
        the number, and may not even be stopped."""
        for thread in self.threads:
            if thread.tid == self.process.pid:
                try:
                    held = get_registers(thread.tid, self.state.layout.itemsize)
                except ProcessLookupError:
                    return True
                return held != thread.registers.tobytes()
        return False

    def stop_one(self, tid: int | None) -> None:
        """Stop one thread. Raises InputError."""
        listed = self._listed() if tid is None else [tid]
        first = self.process.pid if tid is None else tid
        for one in sorted(listed, key=lambda one: one != first):
            if not self._seize(one):
                continue
            self._ask([one])
            self._wait(enough=1, until=min(self._deadline, time.monotonic() + FIRST))
            if self.threads or time.monotonic() > self._deadline:
                break
        self._wait(enough=1)
        _program(self.process)
        if not self.threads:
            raise not_stopped(self.process, list(self._waiting), self.wait)

    def _deliver(self, thread: Thread) -> None:
        tid, until = thread.tid, time.monotonic() + self.wait
        while thread.is_signalled:
            go_on(tid)
            while next_stop(tid) is None and thread.is_signalled and time.monotonic() < until:
                pass  # another thread may take it
            interrupt(tid)
            while self.come(tid) is None:
                if time.monotonic() > until:
                    raise not_stopped(self.process, [tid], self.wait)
            thread.registers, thread.before = self.set_up(tid), ()

    def _go_on(self) -> None:
        """Let everything go. What has not stopped yet is the kernel's, when our thread ends."""
        with undisturbed():
            self._let_go()

    def _let_go(self) -> None:
        self.process.let_go.clear()
        for tid in list(self._waiting):
            with suppress(InputError):
                self._look(tid)
        for thread in sorted(self.threads, key=lambda thread: thread.tid != self.process.pid):
            if thread.leaving is not None:
                with suppress(ProcessLookupError):
                    set_registers(thread.tid, thread.leaving.tobytes())
                    if thread.blocks:  # second: we may be killed in between
                        block_signals(thread.tid)
            if thread.waits and thread.leaving is not None:
                self.process.let_go[thread.tid] = thread.leaving
            elif thread.leaving is None:
                self.process.let_go[thread.tid] = thread.registers
            detach(thread.tid)
        self.pause_ns = time.monotonic_ns() - self.since

    # What follows is done by the caller's thread.

    def _unblock(self) -> None:
        """Do what our thread may wait for itself: it cannot seize while another program is started
        (cred_guard_mutex)."""
        self._reap()
        if time.monotonic() > self._deadline + LATER and not self.threads:
            raise not_stopped(self.process, list(self._waiting), self.wait)

    @contextmanager
    def held(self, stop: Callable[[], None]) -> Iterator[World]:
        """Stop, by a function for the thread that traces, and let go afterwards."""
        with self._ptracer:
            try:
                self._ptracer.do(stop)
                with undisturbed():
                    yield self
            except BaseException:
                for thread in self.threads:
                    thread.leaving = None
                raise
            finally:
                self._ptracer.do(self._go_on)


@contextmanager
def stopped(process: Process, wait: float = 1.0) -> Iterator[World]:
    """Stop all threads of a process, and let them go on afterwards, each where it stood if the body
    raises. Raises InputError if that may not be, or if one does not stop within ``wait`` seconds;
    then nothing is changed."""
    world = World(process, require_may_stop(process), wait)
    with world.held(world.stop_all):
        yield world


@contextmanager
def one_stopped(process: Process, tid: int | None = None, wait: float = 1.0) -> Iterator[World]:
    """Stop one thread: the first, unless another one is given, or stops sooner. Raises InputError
    as ``stopped`` does."""
    world = World(process, require_may_stop(process), wait)
    with world.held(lambda: world.stop_one(tid)):
        yield world


def system_call_of(place: Path) -> Before:
    """The system call that a thread waits in, by its folder in /proc (proc_pid_syscall(5)); empty
    while it runs."""
    try:
        words = (place / "syscall").read_text().split()
    except OSError:
        return ()
    return tuple(int(word, 0) for word in words) if len(words) == 9 else ()


def _program(process: Process) -> list[bytes]:
    """Addresses of code and stack, which another program would have elsewhere (proc_pid_stat(5));
    empty where the first thread has ended, which tells none. Raises InputError if the process has
    ended."""
    try:
        # Not that of another thread, which started later than the process.
        held = Path(f"/proc/{process.pid}/stat").read_bytes()
    except OSError:
        held = b""
    fields = held.rpartition(b")")[2].split()
    if not fields or int(fields[STARTED - 3]) != process.started:
        raise InputError(None, f"{process}: it has ended")
    found = fields[CODE - 3 : STACK - 2]
    return [] if set(found) == {b"0"} else found
