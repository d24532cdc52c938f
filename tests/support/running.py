# SPDX-License-Identifier: MIT
"""Programs that run while a test looks at them, and what others say stands in their memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.padded import padded

__all__ = [
    "LIBRARY",
    "PROGRAM",
    "address_by_nm",
    "code_by_gdb",
    "needs_gdb",
    "poked",
    "program_with_library",
    "running",
    "starts_by_maps",
]

needs_gdb = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gdb") is None, reason="needs gdb on x86-64"
)
PROGRAM = r"""
#include <stdio.h>
#include <unistd.h>
int one(int n) { return n + 1; }
int two(int n) { return one(n) * 2; }
int main(void) { puts("ready"); fflush(stdout); return read(0, (char[1]){0}, 1) + two(3); }
"""
LIBRARY = "int three(int n) { return n + 3; }\nint four(int n) { return three(n) + 1; }\n"


@contextmanager
def running(*words: Path | str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that says ``ready`` and then waits for its standard input."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env={**os.environ, **env}) as program:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        try:
            yield program
        except BaseException:
            program.kill()  # it may wait for more than its standard input
            raise
        finally:
            program.communicate()


def program_with_library(folder: Path) -> tuple[Path, Path]:
    """Compile a program, and a library that it needs: three and two functions with pads."""
    (folder / "lib").mkdir()
    library = padded(folder / "lib", LIBRARY, "-g", "-shared", "-fpic").rename(folder / "libl.so")
    return padded(folder, PROGRAM, "-g", "-Wl,--no-as-needed", str(library)), library


def code_by_gdb(pid: int, address: int, size: int) -> bytes:
    """Read memory with gdb."""
    words = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", f"x/{size}xb {address:#x}"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = [line.partition(":\t")[2] for line in said.splitlines() if line.startswith("0x")]
    return bytes(int(word, 16) for row in rows for word in row.split())


def starts_by_maps(pid: int) -> dict[str, int]:
    """Where each file with code is mapped, as /proc tells it."""
    starts, code = dict[str, int](), set[str]()
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = re.match(r"([0-9a-f]+)-\S+ ..(.). \S+ \S+ \d+ +(/.*?)( \(deleted\))?$", line)
        if match:
            starts.setdefault(match[3], int(match[1], 16))
            code |= {match[3]} if match[2] == "x" else set()
    return {path: start for path, start in starts.items() if path in code}


def address_by_nm(path: Path, name: str) -> int:
    """A symbol's address in a file."""
    said = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    (found,) = [line.split()[0] for line in said.splitlines() if line.split()[-1] == name]
    return int(found, 16)


def poked(pid: int, address: int, code: bytes) -> None:
    """Write to a process's memory, as a debugger would."""
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(code)
