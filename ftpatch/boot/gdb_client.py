# SPDX-License-Identifier: MIT
"""A client of QEMU's gdb stub, as small as watchpoints need (gdb, "Remote Serial Protocol").

    -> $Z2,ffffffff82a5b510,4#cs   <- +$OK#cs
    -> $c#cs                       <- +$T05thread:01;watch:ffffffff82a5b510;#cs

cs is the sum of the characters, modulo 256, in hexadecimal.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ftpatch.errors import UsageError

__all__ = ["GdbClient", "Stop"]

PATIENCE = 20.0
"""Seconds in which the stub has to answer for the first time."""
PART = 4096
"""Bytes to receive at a time."""
REGISTER = 8
"""Bytes of a register."""
STOPPED = re.compile(rb"T[0-9a-f]{2}(.*)", re.DOTALL)
HIT = re.compile(rb"([ra]?)watch")


@dataclass(frozen=True)
class Stop:
    """A stop of the machine: the number of its ``cpu``, from 0; ``address`` of the watchpoint that
    was hit (None: it was none), and whether that is one for reads."""

    cpu: int
    address: int | None
    reads: bool


class GdbClient:
    """A connection to a stub that QEMU was given as the descriptor ``files``, by its ``words``."""

    def __init__(self) -> None:
        self._socket, self._theirs = socket.socketpair()
        self.files: Sequence[int] = (self._theirs.fileno(),)
        self.words: Sequence[str] = (
            *("-chardev", f"socket,id=gdb,fd={self._theirs.fileno()}"),
            *("-gdb", "chardev:gdb", "-S"),
        )
        self._held = b""
        self.ended = False
        """True once the stub has not answered: what was asked since is unknown."""

    def connect(self) -> None:
        """Wait until the stub answers. Raises UsageError if it does not."""
        self._theirs.close()
        self._socket.settimeout(PATIENCE)
        if self._ask(b"?") is None:
            raise UsageError(None, "QEMU's gdb stub does not answer", "--watch needs its -gdb")
        self._socket.settimeout(None)

    def close(self) -> None:
        """End the connection; a thread that waits for a stop gets none."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def watch(self, address: int, length: int, *, reads: bool, on: bool = True) -> bool:
        """Set or clear a watchpoint for reads or writes; return whether the stub did."""
        kind = 3 if reads else 2
        return self._ask(f"{'Z' if on else 'z'}{kind},{address:x},{length}".encode()) == b"OK"

    def register(self, number: int, *, alone: bool = False) -> int:
        """Read a register of the processor that stopped, one of the first, which all have the same
        size; 0 if it cannot be read. ``alone``: without the others. (QEMU answers `p` only those
        who asked for its XML.)"""
        if alone:
            self._ask(b"qXfer:features:read:target.xml:0,ff")
            held = self._bytes(f"p{number:x}")
        else:
            held = self._bytes("g")[number * REGISTER :][:REGISTER]
        return int.from_bytes(held, "little")

    def memory(self, address: int, length: int) -> bytes:
        """Read memory by that processor's page tables; empty if it cannot be read."""
        return self._bytes(f"m{address:x},{length}")

    def go_on(self) -> Stop | None:
        """Let the machine run until it stops; None at its end."""
        return self._stop(self._ask(b"c"))

    def step(self, cpu: int) -> Stop | None:
        """Let one processor run one instruction."""
        return self._stop(self._ask(f"vCont;s:{cpu + 1:x}".encode()))

    def _bytes(self, packet: str) -> bytes:
        answer = self._ask(packet.encode()) or b""
        try:
            return bytes.fromhex(answer.decode("ascii"))
        except ValueError:  # E14, say
            return b""

    def _stop(self, answer: bytes | None) -> Stop | None:
        """Parse the reason of a stop; None at the end (W00, say)."""
        found = STOPPED.fullmatch(answer) if answer is not None else None
        if found is None:
            return None
        cpu, address, reads = 0, None, False
        for part in found[1].split(b";"):
            key, _, value = part.partition(b":")
            if key == b"thread":
                cpu = int(value.rpartition(b".")[2].removeprefix(b"p"), 16) - 1
            elif hit := HIT.fullmatch(key):
                address, reads = int(value, 16), hit[1] == b"r"
        return Stop(cpu, address, reads)

    def _ask(self, packet: bytes) -> bytes | None:
        """Send a packet, and return the answer; None at the end of the connection."""
        try:
            self._socket.sendall(b"$%s#%02x" % (packet, sum(packet) % 256), socket.MSG_NOSIGNAL)
            while (found := re.search(rb"\$([^#]*)#..", self._held, re.DOTALL)) is None:
                more = self._socket.recv(PART)
                if not more:
                    raise ConnectionResetError
                self._held += more
            self._held = self._held[found.end() :]
            self._socket.sendall(b"+", socket.MSG_NOSIGNAL)
        except OSError:
            self.ended = True
            return None
        return found[1]
