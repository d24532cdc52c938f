"""Broken modules of every form, patched, signed and packed: each verb ends with 0, 1 or 2, soon,
and writes nothing that cannot be read or taken back."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from .command import ROOT
from .fuzz_modules import NAMES, broken
from .loose_forms import FORMS
from .test_fuzz import COUNT as CASES
from .test_fuzz import SEED

PARTS = 6
COUNT = str(max(int(CASES) // 2, 1))
"""Of more than thirty names."""


@pytest.mark.parametrize("part", range(PARTS))
def test_broken_modules(part: int, tmp_path: Path) -> None:
    names = NAMES[part::PARTS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz_modules", SEED, COUNT, str(tmp_path), *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60 * int(COUNT) + 60,
        check=False,
    )
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if not line.startswith(("case:", "done"))]
    assert not wrong, "\n".join(wrong)
    last = next((line for line in reversed(lines) if line.startswith("case:")), "no case")
    assert done.returncode == 0, f"died with {done.returncode} in {last}\n{done.stderr[-2000:]}"
    assert lines[-1] == "done"
    assert not done.stderr, done.stderr


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
