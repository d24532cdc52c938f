# SPDX-License-Identifier: MIT
"""Debug information, of which only parts are parsed: pyelftools by itself reads the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.debuginfo.debug_info import DebugInfo
from tests.watch.test_watch_parts import PLUS


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("dwarf", [3, 4, 5])
def test_the_same_entries(compiler: str, dwarf: int, tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("#include <vector>\nstd::vector<int> all{1, 2};\n" + PLUS)
    words = [compiler, "-O1", f"-gdwarf-{dwarf}", "a.cpp", "-o", "a"]
    subprocess.run(words, cwd=tmp_path, check=True)
    mine = DebugInfo(tmp_path / "a").dwarf
    with (tmp_path / "a").open("rb") as file:
        theirs = ELFFile(file).get_dwarf_info(relocate_dwarf_sections=False)
        units = zip(mine.iter_CUs(), theirs.iter_CUs(), strict=True)
        found = [(str(one), str(other)) for a, b in units
                 for one, other in zip(a.iter_DIEs(), b.iter_DIEs(), strict=True)]  # fmt: skip
    assert len(found) > 100
    assert all(one == other for one, other in found)
