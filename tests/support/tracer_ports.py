# SPDX-License-Identifier: MIT
"""Programs of other architectures, built by cross compilers, and what their traces say."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import PATIENCE
from tests.support.cross_root import CROSS, use_cross_root
from tests.support.gnu import i386_libraries, runner
from tests.support.trace_events import order_of
from tests.support.tracer_programs import ARCHES

__all__ = [
    "ENTRY_ARGS",
    "EXIT_VALUE",
    "FORMS",
    "PID",
    "THREADS",
    "TRACERS",
    "Form",
    "Trace",
    "Tree",
    "build",
    "run",
    "run_with",
]

SOURCES = Path(__file__).parent.parent / "programs"
TRACERS = ("nop", "function", "function_graph", "function_profile")
HEADER, CHUNK = 4096, 32
ENTRY, EXIT, ENTRY_ARGS, EXIT_VALUE, LEFT, TIME = 1, 2, 4, 5, 6, 7
WORDS = {3: 2, ENTRY_ARGS: 7, EXIT_VALUE: 2, TIME: 2}
"""Of an event; of the others one."""
FLAGS, PID, THREADS, LOST = 28, 104, 116, 120
"""Offsets in the header."""
ARGS, ENDED, SILENT = 1, 2, 16
Tree = tuple[str, list["Tree"]]


@dataclass(frozen=True)
class Port:
    """``prefix`` of the cross compilers, without the dash; ``flags`` that they need besides;
    ``root``: where the loader and libraries are, if not in /usr."""

    prefix: str
    pad: int
    flags: tuple[str, ...] = ()
    root: str = ""

    @property
    def libraries(self) -> Path:
        """Where the loader and libraries are."""
        return Path(self.root or f"/usr/{self.prefix}")


PORTS = {
    "i386": Port("i686-linux-gnu", 5),
    "arm64": Port("aarch64-linux-gnu", 2),
    "riscv64": Port("riscv64-linux-gnu", 4),
    "ppc64le": Port("powerpc64le-linux-gnu", 2, ARCHES["ppc64le"].flags),
    "arm": Port("arm-linux-gnueabihf", 3, ARCHES["arm"].flags),
    "s390x": Port("s390x-linux-gnu", 3),
    "loongarch64": Port("loongarch64-linux-gnu", 2, root=ARCHES["loongarch64"].root),
}
LINKS = {
    "static": ("-static", "-fno-pie"),
    "pie": ("-pie", "-fPIE"),
    "no-pie": ("-no-pie", "-fno-pie"),
}


@dataclass(frozen=True)
class Form:
    """How a program is built; ``cpu`` is qemu's."""

    arch: str
    link: str
    level: str
    more: tuple[str, ...] = ()
    cpu: str = ""

    def __str__(self) -> str:
        return "-".join((self.arch, self.link, self.level[1:], *self.more))


FORMS = [Form(arch, link, o) for arch in PORTS for link in LINKS for o in ("-O0", "-O2")]
FORMS += [Form("arm", link, o, ("-marm",)) for link, o in (("static", "-O0"), ("pie", "-O2"))]
"""The default is T32."""


def build(form: Form, name: str, folder: Path, *flags: str) -> Path:
    """Compile and link a program of tests/programs; skips where there is no compiler for it."""
    port = PORTS[form.arch]
    compiler = f"{port.prefix}-{'g++' if name.endswith('.cpp') else 'gcc'}"
    if form.arch in CROSS:
        use_cross_root(form.arch)
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    target = folder / Path(name).stem
    command = [compiler, "-w", form.level, *LINKS[form.link], *port.flags, *form.more, *flags]
    command.append("-pthread")
    if "-pg" not in form.more:
        command.append(f"-fpatchable-function-entry={port.pad}")
    if form.arch == "i386" and form.link != "static":
        libraries = port.libraries / "lib"
        command.append(f"-Wl,--dynamic-linker={libraries / 'ld-linux.so.2'},-rpath={libraries}")
    command += [str(SOURCES / name), "-o", str(target)]
    if form.arch == "i386" and not form.link.startswith("static"):
        command += i386_libraries(plus=name.endswith(".cpp"))
    subprocess.run(command, check=True)
    return target


def run(form: Form, program: Path, trace: Path | None = None) -> tuple[str, int]:
    """What a program prints, and its status; its trace goes to a file."""
    env = {"FTPATCH_TRACE": str(trace or "/nowhere"), "FTPATCH_TRACE_SIZE": "32M"}
    done = run_with(form, program, (), **env)
    return done.stdout, done.returncode


def run_with(
    form: Form, program: Path, words: Sequence[str], **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program."""
    command = runner(form.arch)
    if command:
        command += ["-L", str(PORTS[form.arch].libraries)]
        command += ["-cpu", form.cpu] if form.cpu else []
    return subprocess.run(
        [*command, str(program), *words],
        cwd=program.parent,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@dataclass
class Trace:
    """A trace file, and the program that it is of."""

    data: bytes
    names: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, program: Path) -> Trace:
        """Read both."""
        with program.open("rb") as file:
            symbols = ELFFile(file).get_section_by_name(".symtab").iter_symbols()
            names = {s["st_value"]: s.name for s in symbols if s["st_info"]["type"] == "STT_FUNC"}
        return cls(path.read_bytes(), names)

    def number(self, offset: int, kind: str = "I") -> int:
        """A field of the header."""
        return int(self._unpacked(kind, offset)[0])

    def _unpacked(self, kind: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(order_of(self.data) + kind, self.data, offset)

    def whole(self) -> None:
        """The program came to its end, the tracer did not stop, and no call was lost."""
        assert self.number(FLAGS) & ~(ARGS | SILENT) == ENDED
        assert self._unpacked("5Q", LOST) == (0,) * 5

    def chunks(self) -> Iterator[tuple[int, int]]:
        """(thread, offset) of each."""
        size, taken = self.number(20), self.number(40, "Q")
        for at in range(HEADER, HEADER + taken, size):
            magic, tid = self._unpacked("2I", at)
            assert magic == 0x4B4E4843  # CHNK, as little-endian machines store it
            yield tid, at

    def events(self, thread: int) -> Iterator[tuple[int, int, list[int]]]:
        """(type, func, further words) of a thread's."""
        size = self.number(20)
        for tid, start in self.chunks():
            at = start + CHUNK
            while tid == thread and at < start + size:
                (word,) = self._unpacked("Q", at)
                kind, func = word & 7, word >> 3 & 0xFFF_FFFF
                if not word:
                    break
                more = WORDS.get(kind, 1)
                yield kind, func, list(self._unpacked(f"{more - 1}Q", at + 8))
                at += 8 * more

    def name(self, func: int) -> str:
        """Of the function that an event is of."""
        address = func + self.number(56, "Q")
        starts = sorted(self.names)
        return self.names[starts[bisect_right(starts, address) - 1]]

    def tree(self, thread: int, root: str) -> Tree:
        """The calls of the first call of a function."""
        open_: list[Tree] = []
        for kind, func, _ in self.events(thread):
            if kind in (ENTRY, ENTRY_ARGS) and (open_ or self.name(func) == root):
                call: Tree = (self.name(func), [])
                if open_:
                    open_[-1][1].append(call)
                open_.append(call)
            elif kind in (EXIT, EXIT_VALUE) and open_:
                last = open_.pop()
                assert last[0] == self.name(func)
                if not open_:
                    return last
        raise AssertionError(f"{root} does not end")
