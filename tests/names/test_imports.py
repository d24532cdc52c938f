# SPDX-License-Identifier: MIT
"""Entries of procedure linkage tables, as objdump names them."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ftpatch.image import open_image
from ftpatch.names.plt import plt_symbols

SOURCE = """
#include <stdlib.h>
#include <stdio.h>
int main(int argc, char **argv)
{
        atexit(abort);
        printf("%d", rand());
        return puts(getenv(argv[1]));
}
"""
BUILDS = {
    "pie": ["gcc", "-O2"],
    "lazy": ["gcc", "-O2", "-no-pie", "-Wl,-z,lazy"],
    "ibt": ["gcc", "-O2", "-fcf-protection", "-Wl,-z,ibtplt"],
    "ibt-lazy": ["gcc", "-O2", "-fcf-protection", "-Wl,-z,ibtplt", "-Wl,-z,lazy"],
    "lld": ["clang", "-O2", "-fuse-ld=lld"],
    "arm64": ["aarch64-linux-gnu-gcc", "-O2"],
    "arm64-bti": [
        "aarch64-linux-gnu-gcc",
        "-O2",
        "-mbranch-protection=standard",
        "-Wl,-z,force-bti",
    ],
    "ppc64le": ["powerpc64le-linux-gnu-gcc", "-O2"],
    "ppc64le-no-pie": ["powerpc64le-linux-gnu-gcc", "-O2", "-no-pie", "-Wl,-z,lazy"],
    "arm64-pac": ["aarch64-linux-gnu-gcc", "-O2", "-Wl,-z,pac-plt"],
}
FOUND = ("bash", "sort", "gdb", "python3", "sqlite3")
TABLES = ("-j.plt", "-j.plt.sec", "-j.plt.got")


def _theirs(program: Path, objdump: str) -> dict[int, str]:
    words = [objdump, "-d", "--no-show-raw-insn", *TABLES, str(program)]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    if "powerpc" in objdump:  # whose NAME@plt is what binds lazily
        words = [objdump, "-d", "--no-show-raw-insn", "-j.text", str(program)]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        said = re.sub("<.*@plt>:", "", said)
        said = re.sub(r"<\w+\.plt_call\.(\w+)@.*>:", r"<\1@plt>:", said)
    rows = re.findall(r"^([0-9a-f]+) <(.+)@plt>:$", said, re.MULTILINE)
    return {int(at, 16): name.partition("@")[0] for at, name in rows if name[0] != "*"}


def _ours(program: Path) -> dict[int, str]:
    found = plt_symbols(open_image(program))
    names = [name.removesuffix("@plt") for name in found.names(np.arange(len(found)))]
    return dict(zip(found.value.tolist(), names, strict=True))


@pytest.mark.parametrize("build", BUILDS)
def test_entries_are_those_of_objdump(build: str, tmp_path: Path) -> None:
    words = BUILDS[build]
    if shutil.which(words[0]) is None or (build == "lld" and shutil.which("ld.lld") is None):
        pytest.skip(f"no {words[0]}")
    source, program = tmp_path / "imports.c", tmp_path / "imports"
    source.write_text(SOURCE)
    subprocess.run([*words, source, "-o", program], check=True, stderr=subprocess.DEVNULL)
    cross = words[0].removesuffix("gcc") if words[0] not in ("gcc", "clang") else ""
    theirs = _theirs(program, f"{cross}objdump")
    assert {"printf", "rand", "getenv"} <= set(theirs.values())
    assert _ours(program) == theirs


@pytest.mark.parametrize("name", FOUND)
def test_entries_of_distributed_programs_are_those_of_objdump(name: str) -> None:
    found = shutil.which(name, path="/usr/bin:/bin")
    if found is None:
        pytest.skip(f"no {name}")
    theirs = _theirs(Path(found), "objdump")
    assert len(theirs) > 20
    assert _ours(Path(found)) == theirs


@pytest.mark.parametrize("where", [1 << 63, (1 << 64) - 16, 0x1000_0000, -16], ids=hex)
def test_a_table_that_is_not_where_its_header_says_is_none(where: int, tmp_path: Path) -> None:
    """``where``: address of .plt.sec; -16: less by that."""
    source, program = tmp_path / "imports.c", tmp_path / "imports"
    source.write_text(SOURCE)
    subprocess.run([*BUILDS["ibt"], source, "-o", program], check=True)
    before, raw = _ours(program), bytearray(program.read_bytes())
    (sections,), (count,) = struct.unpack_from("<Q", raw, 40), struct.unpack_from("<H", raw, 60)
    own = next(row for row in open_image(program).elf.sections if row.name == ".plt.sec")
    for row in range(sections, sections + 64 * count, 64):
        if struct.unpack_from("<2Q", raw, row + 16) == (own.address, own.offset):
            struct.pack_into("<Q", raw, row + 16, where if where > 0 else own.address + where)
    program.write_bytes(raw)
    assert "printf" in before.values()
    assert "printf" not in _ours(program).values()
