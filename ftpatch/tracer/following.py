# SPDX-License-Identifier: MIT
"""Following a program into all programs that it and its children start: a thread of ours traces
them by ptrace(2), and sees each exec before anything of the new program has run.

    main thread        fork ── waits ──────────────────── exec
    this thread             seize, with FORK, VFORK, CLONE, EXEC ── events ...

Everything else goes on as it would: signals are passed on, and so are stops of a whole process
(PTRACE_LISTEN). If ftpatch ends or is killed, the kernel lets all of them go (never
PTRACE_O_EXITKILL): they run on, those who record yet as before.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ftpatch.arch import feature
from ftpatch.arch.thread_state import registers_in, thread_state_of
from ftpatch.errors import FtpatchError, InputError
from ftpatch.process.process import Process, ending, find_process
from ftpatch.process.ptrace import (
    WALL,
    Ended,
    Option,
    Stop,
    detach,
    get_registers,
    go_on,
    listen,
    seize,
    set_registers,
)
from ftpatch.process.refusals import own_arch
from ftpatch.process.thread import is_signalled

__all__ = ["Following", "NotFollowed"]

OPTIONS: Final = Option.FORK | Option.VFORK | Option.CLONE | Option.EXEC
ENDS: Final = (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED)
YES, NO = b"y", b"n"
Started = Callable[[Process, str], bool]
"""Called in the thread that traces with a process that has just started a program and the
machine's architecture; returns whether all of the process is to stay stopped. Raises Ended."""


class NotFollowed(InputError):
    """A program that cannot be followed, and has not been started therefore."""


class Following:
    """Follows one program, whose process calls ``before`` as the last thing ahead of exec.
    ``once``: only into that program, which runs untraced from then on."""

    def __init__(self, started: Started, *, once: bool = False) -> None:
        """Raises InputError where the machine's programs cannot be followed."""
        arch = own_arch()
        if arch is None:
            raise InputError(None, "programs of this machine cannot be followed")
        feature(arch.name, "held_call")
        self._arch, self._state = arch.name, thread_state_of(arch.name)
        self._started, self._once, self._let_go = started, once, False
        self._pid = 0
        self._code = 0
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._asks, self._asked = os.pipe()
        self._answers, self._answered = os.pipe()
        self._thread = threading.Thread(target=self._run, name="following", daemon=True)
        self._thread.start()

    def before(self) -> None:
        """Called in the new process: wait until it is traced, and end it if it cannot be."""
        os.write(self._asked, os.getpid().to_bytes(8, "little"))
        for fd in (self._asks, self._answered):  # else it would wait for ever if ftpatch is killed
            os.close(fd)
        if os.read(self._answers, 1) != YES:
            os._exit(0)

    def send(self, number: int) -> None:
        """Send the program a signal unless it has ended."""
        if self._pid and not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def wait(self) -> int:
        """Wait until the program has ended; return its exit code, or less than 0 for a signal. What
        it has left running is followed no more. Raises NotFollowed."""
        self._ended.wait()
        self._close()
        if self._failure is not None:
            raise self._failure
        return self._code

    def _close(self) -> None:
        self._thread.join()
        for fd in (self._asked, self._asks, self._answers, self._answered):
            os.close(fd)

    # What follows is done by the thread that traces.

    def _run(self) -> None:
        try:
            held = os.read(self._asks, 8)
            if held:
                self._follow(int.from_bytes(held, "little"))
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()

    def _follow(self, pid: int) -> None:
        try:
            seize(pid, Option.EXEC if self._once else OPTIONS)
        except (OSError, Ended) as error:
            os.write(self._answered, NO)
            raise NotFollowed(
                None,
                f"the program cannot be followed: {error.__class__.__name__}",
                "a container or a security module may forbid ptrace(2)",
            ) from None
        self._pid = pid
        os.write(self._answered, YES)
        while not self._ended.is_set():
            if self._let_go:  # another thread of ours may trace it: wait(2) would take its stops
                with ending(pid) as has_ended:
                    has_ended(None)
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | WALL)
            except ChildProcessError:  # it could not be started
                return
            assert found is not None
            if found.si_code == os.CLD_TRAPPED:
                with suppress(Ended):
                    self._stopped(found.si_pid, found.si_status >> 8, found.si_status & 0x7F)
            elif found.si_pid == pid and found.si_code in ENDS:
                self._code = found.si_status * (1 if found.si_code == os.CLD_EXITED else -1)
                return

    def _stopped(self, tid: int, event: int, number: int) -> None:
        """Let a thread go on from a stop. Raises Ended."""
        if event == Stop.STOP and number != signal.SIGTRAP:
            listen(tid)
        elif event == Stop.EXEC:
            self._executed(tid)
        else:
            if not event:
                self._set_up(tid, number)
            go_on(tid, 0 if event else number)

    def _executed(self, tid: int) -> None:
        stays = False
        try:
            stays = self._started(find_process(tid), self._arch)
        except FtpatchError:  # killed meanwhile
            pass
        finally:
            if self._once:
                self._let_go = True
                detach(tid)
            elif stays:
                listen(tid)
            else:
                go_on(tid)

    def _set_up(self, tid: int, number: int) -> None:
        """A signal that is ignored wakes a traced thread nevertheless: its system call is made
        again where it would end with EINTR. Raises Ended."""
        try:
            layout = self._state.layout
            held = get_registers(tid, layout.itemsize)
            if len(held) != layout.itemsize:
                return  # of 32-bit code
            registers = registers_in(layout, held)
            place = Path(f"/proc/{tid}")
            if self._state.again(registers, (), lambda: is_signalled(place, number)):
                set_registers(tid, registers.tobytes())
        except ProcessLookupError:
            raise Ended from None
