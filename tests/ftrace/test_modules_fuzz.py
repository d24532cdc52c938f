# SPDX-License-Identifier: MIT
"""Broken modules of every form, patched, signed and packed: each verb ends with 0, 1 or 2, soon,
and writes nothing that cannot be read or taken back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.ftrace.test_fuzz import COUNT as CASES
from tests.support.fuzz_modules import NAMES, broken
from tests.support.fuzz_runs import run_fuzzer
from tests.support.loose_forms import FORMS

PARTS = 6
COUNT = str(max(int(CASES) // 2, 1))
"""Of more than thirty names."""


@pytest.mark.scaled
@pytest.mark.parametrize("part", range(PARTS))
def test_broken_modules(part: int, tmp_path: Path) -> None:
    run_fuzzer("fuzz_modules", COUNT, tmp_path, NAMES[part::PARTS])


def test_mutations_reach_every_part() -> None:
    """Of each form and state: headers, tables, relocations, symbols, streams, journals."""
    said = ""
    for case in range(40):
        for name in NAMES:
            data, what = broken(name, random.Random(f"{name} {case}"))
            assert broken(name, random.Random(f"{name} {case}")) == (data, what)
            said += f"{name.split('+')[-1]}: {what}\n"
    parts = ["header", "section headers", ".symtab", ".strtab", ".rela.text", ".rel.text"]
    parts += [".text", ".init.text", ".modinfo", "journal", "stream", "end", "forged"]
    parts += [f"{'.rela' if form.rela else '.rel'}{form.table}" for form in FORMS.values()]
    for part in parts:
        assert f" {part}" in said, part
