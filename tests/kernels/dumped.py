# SPDX-License-Identifier: MIT
"""Dumps of a booted kernel at several moments: QEMU's dump-guest-memory, and code planted by its
gdb stub.

    guest                          host, over QMP and the stub
    commands of a step
    @@ dump NAME
    read <- console                plant; stop; dump-guest-memory; cont; a line
"""

from __future__ import annotations

import json
import mmap
import re
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .guest import APPEND, INIT, cpio
from .qemu import MACHINES, need
from .trees import Tree

__all__ = ["Dumped", "Gdb", "dump_steps", "with_note"]

LIMIT = 300  # seconds; a boot takes 4 to 20
MARK = "@@ dump "
DIRECT = 0xFFFF888000000000  # page_offset_base of x86-64, without KASLR
MEMORY = "256M"  # a dump has as much


@dataclass(frozen=True)
class Dumped:
    """A dump, and what the commands before it said."""

    path: Path
    said: str

    def words(self, pattern: str) -> list[str]:
        """What a pattern finds in it."""
        return re.findall(pattern, self.said, re.MULTILINE)


class Gdb:
    """QEMU's gdb stub: it writes to text, whatever its protection (Remote Serial Protocol)."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT)
        self._socket.connect(str(path))
        self._ask("?")  # it has stopped the guest

    def write(self, address: int, code: bytes) -> None:
        if self._ask(f"M{address:x},{len(code):x}:{code.hex()}") != "OK":
            raise ValueError("not mapped")

    def read(self, address: int, size: int) -> bytes:
        return bytes.fromhex(self._ask(f"m{address:x},{size:x}"))

    def close(self) -> None:
        self._ask("D")  # detach: the guest goes on
        self._socket.close()

    def _ask(self, text: str) -> str:
        self._socket.sendall(f"${text}#{sum(text.encode()) % 256:02x}".encode())
        held = b""
        while not re.search(rb"\$([^#]*)#..", held):
            piece = self._socket.recv(4096)
            assert piece, f"the stub has gone, at {text}"
            held += piece
        self._socket.sendall(b"+")
        found = re.search(rb"\$([^#]*)#..", held)
        assert found is not None
        return found[1].decode()


Plant = Callable[[Gdb, str], None]
"""Given what the step said, writes to memory before the dump."""


def dump_steps(
    tree: Tree,
    scratch: Path,
    steps: dict[str, str],
    files: dict[str, bytes] | None = None,
    plants: dict[str, Plant] | None = None,
    *,
    kernel: Path | None = None,
) -> dict[str, Dumped]:
    """Boot, and after each step's shell commands dump the memory; ``kernel``: instead of the
    tree's, which for x86 has no KASLR."""
    need(MACHINES[tree.arch][0])
    script = [INIT, "dmesg -n 1"]
    for name, commands in steps.items():
        script += [commands, f"echo '{MARK}{name}'", "read answer </dev/console"]
    made = {"init": "\n".join([*script, "sleep 600", ""]).encode()}
    made |= {"bin/busybox": tree.busybox.read_bytes()} | (files or {})
    initrd, monitor, stub = (scratch / f"{tree.name}.{end}" for end in ("initrd", "qmp", "gdb"))
    initrd.write_bytes(cpio(made))
    command: list[str | Path] = [
        *MACHINES[tree.arch], "-m", MEMORY, "-kernel", kernel or tree.kernel, "-initrd", initrd,
        "-append", f"{APPEND[tree.arch]} panic=-1 loglevel=1",
        "-qmp", f"unix:{monitor},server=on,wait=off", "-gdb", f"unix:{stub},server=on,wait=off",
    ]  # fmt: skip
    found: dict[str, Dumped] = {}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as machine:
        timer = threading.Timer(LIMIT, machine.kill)
        timer.start()
        try:
            assert machine.stdout is not None and machine.stdin is not None
            lines: list[str] = []
            for line in machine.stdout:
                lines.append(line)
                if not line.startswith(MARK):
                    continue
                name, said = line.removeprefix(MARK).strip(), "".join(lines)
                if plants and name in plants:
                    _plant(stub, plants[name], said)
                found[name] = Dumped(scratch / f"{tree.name}.{name}.core", said)
                _dump(monitor, found[name].path)
                lines.clear()
                if len(found) == len(steps):
                    break
                machine.stdin.write("\n")
                machine.stdin.flush()
        finally:
            timer.cancel()
            machine.kill()
    assert list(found) == list(steps), "".join(lines[-30:])
    return found


def with_note(dump: Path, out: Path) -> None:
    """Write QEMU's dump as kdump has it: without sections, which QEMU adds, with VMCOREINFO as a
    note, and with addresses of the kernel's direct mapping (nokaslr)."""
    with dump.open("rb") as source:
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
            texts = re.findall(rb"OSRELEASE=[\t\n -~]{200,}", data)
        info = max(texts, key=len)
        source.seek(0)
        head = bytearray(source.read(64))
        (start,), (count,) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<H", head, 56)
        source.seek(start)
        rows = [list(struct.unpack("<IIQQQQQQ", source.read(56))) for _ in range(count)]
        note, *parts = rows
        source.seek(note[2])
        notes = source.read(note[5]) + struct.pack("<III", 11, len(info), 0)
        notes += b"VMCOREINFO\0\0" + info + bytes(-len(info) % 4)
        at = 4096 + (-len(notes) % 4096) + len(notes)
        made = [[4, 0, 4096, 0, 0, len(notes), len(notes), 4]]
        for _, _, _, _, physical, size, memory, _ in parts:
            made.append([1, 7, at, DIRECT + physical, physical, size, memory, 0])
            at += size
        struct.pack_into("<QQIHHHHHH", head, 32, 64, 0, 0, 64, 56, len(made), 0, 0, 0)
        with out.open("wb") as file:
            file.write(head + b"".join(struct.pack("<IIQQQQQQ", *row) for row in made))
            file.seek(4096)
            file.write(notes)
            for row, part in zip(made[1:], parts, strict=True):
                file.seek(row[2])
                source.seek(part[2])
                file.write(source.read(part[5]))


def _plant(stub: Path, plant: Plant, said: str) -> None:
    """Write when the processor is in the kernel: while it is in user space, the page tables that
    the stub goes by may lack the kernel (KPTI)."""
    for _ in range(100):
        gdb = Gdb(stub)
        try:
            plant(gdb, said)
            return
        except ValueError:  # E14 instead of bytes
            time.sleep(0.1)
        finally:
            gdb.close()
    raise AssertionError("the kernel is never mapped")


def _dump(monitor: Path, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(LIMIT)
        link.connect(str(monitor))
        with link.makefile("rw") as file:
            file.readline()
            where = {"paging": False, "protocol": f"file:{path}"}
            _ask(file, "qmp_capabilities")
            _ask(file, "stop")
            _ask(file, "dump-guest-memory", where)
            _ask(file, "cont")


def _ask(file: IO[str], what: str, arguments: dict[str, Any] | None = None) -> None:
    file.write(json.dumps({"execute": what} | ({"arguments": arguments} if arguments else {})))
    file.flush()
    while True:
        answer = json.loads(file.readline())
        assert "error" not in answer, answer
        if "return" in answer:
            return
