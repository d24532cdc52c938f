# SPDX-License-Identifier: MIT
"""What unwind information says at each place, of C libraries of both byte orders: pyelftools reads
the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from ftpatch.elf.unwind_rules import UnwindRules
from ftpatch.image import open_image
from tests.support.tracer_programs import ARCHES

STEP = 23
"""One function of so many is looked at: there are thousands."""
LIBRARIES = [
    *((arch, "libc.so.6") for arch in ("s390x", "ppc64le", "riscv64", "arm64")),
    ("s390x", "libm.so.6"),  # whose leaf functions keep registers in others
]


@pytest.mark.parametrize(("arch", "library"), LIBRARIES)
def test_they_are_those_of_pyelftools(arch: str, library: str) -> None:
    path = Path(ARCHES[arch].root, "lib", library)
    if not path.is_file():
        pytest.skip(f"{path} is not installed")
    rules = UnwindRules(open_image(path).elf)
    seen = moved = 0
    with path.open("rb") as file:
        entries = [
            one for one in ELFFile(file).get_dwarf_info().EH_CFI_entries() if isinstance(one, FDE)
        ]
        for fde in entries[::STEP]:
            table = fde.get_decoded().table
            end = fde["initial_location"] + fde["address_range"]
            for row, after in pairwise([*table, {"pc": end}]):
                if row["pc"] == after["pc"] or row["cfa"].reg is None:
                    continue
                found = rules.at(row["pc"])
                if found is None:  # of a signal's frame
                    continue
                seen += 1
                assert found.cfa == (row["cfa"].reg, row["cfa"].offset)
                told = {key: rule for key, rule in row.items() if isinstance(key, int)}
                assert {key: at for key, at in found.saved.items() if at is not None} == {
                    key: rule.arg for key, rule in told.items() if rule.type == "OFFSET"
                }
                wanted = {key: rule.arg for key, rule in told.items() if rule.type == "REGISTER"}
                assert found.moved == wanted
                moved += len(wanted)
    assert seen > 100
    assert moved or library != "libm.so.6"
