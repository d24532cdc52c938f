# SPDX-License-Identifier: MIT
"""Accesses to a kernel's variables, recorded by watchpoints of QEMU's gdb stub.

The stub compares virtual addresses, of all processors, before every access: any number of
watchpoints, from the first instruction on. The machine stands still while an access is recorded, so
how many events it has sent says where among them the access was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread

from ftpatch.arch.gdb_stub import GdbStub
from ftpatch.boot.gdb_client import GdbClient, Stop
from ftpatch.errors import UsageError

__all__ = ["Accessed", "AccessRecorder", "Watched"]


@dataclass(frozen=True, kw_only=True)
class Watched:
    """``length`` bytes at the link address ``address``, watched for ``reads`` and ``writes``;
    ``line``: the watch as written, ``symbol`` and ``offset``: what they are, ``size`` bytes of it,
    0 if unknown; ``initial``: the value in the image."""

    line: str
    symbol: str
    offset: int
    size: int
    address: int
    length: int
    reads: bool
    writes: bool
    initial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accessed:
    """An access to the watch of number ``watch``, after so many ``events``, at the program counter
    ``pc``; ``reads``: it was a watchpoint for reads; ``before`` and ``after``: the value."""

    watch: int
    events: int
    pc: int
    cpu: int
    reads: bool
    before: int
    after: int


class AccessRecorder:
    """Records accesses in a thread; ``events`` counts what the machine has sent. ``words`` and
    ``files`` are for QEMU."""

    def __init__(
        self, watched: Sequence[Watched], stub: GdbStub, events: Callable[[], int]
    ) -> None:
        self.watched, self._stub, self._events = watched, stub, events
        self._client = GdbClient()
        self.words, self.files = self._client.words, self._client.files
        self.accesses: list[Accessed] = []
        self._values = [one.initial for one in watched]
        self._thread = Thread(target=self._record, daemon=True)

    def start(self) -> None:
        """Set the watchpoints, and let the machine run. Raises UsageError without a stub, and
        where it refuses one."""
        self._client.connect()
        self._set()
        self._thread.start()

    def finish(self) -> None:
        """Wait for the end: the machine has ended."""
        self._client.close()
        if self._thread.is_alive():
            self._thread.join()

    def _set(self, *, on: bool = True) -> None:
        for one in self.watched:
            for reads, wanted in ((True, one.reads), (False, one.writes)):
                if wanted and not self._client.watch(one.address, one.length, reads=reads, on=on):
                    raise UsageError(None, f"{one.line}: QEMU's gdb stub refuses it")

    def _record(self) -> None:
        client = self._client
        stop = client.go_on()
        while stop is not None:
            row = self._watch_at(stop)
            if row is not None:
                self._access(row, stop)
            stop = client.go_on()

    def _watch_at(self, stop: Stop) -> int | None:
        """Number of the watch that was hit."""
        for row, one in enumerate(self.watched):
            if stop.address is not None and 0 <= stop.address - one.address < one.length:
                return row
        return None

    def _access(self, row: int, stop: Stop) -> None:
        events, pc = self._events(), self._client.register(self._stub.pc, alone=self._stub.alone)
        before = self._values[row]
        if self._stub.before:
            before = self._value(row)
            try:
                self._set(on=False)
                self._client.step(stop.cpu)
                self._set()
            except UsageError:  # the machine has ended
                return
        after = self._values[row] = self._value(row)
        if self._client.ended:
            return
        self.accesses.append(
            Accessed(
                watch=row,
                events=events,
                pc=pc,
                cpu=stop.cpu,
                reads=stop.reads,
                before=before,
                after=after,
            )
        )

    def _value(self, row: int) -> int:
        one = self.watched[row]
        held = self._client.memory(one.address, one.length)
        return int.from_bytes(held, "little") if held else self._values[row]
