# SPDX-License-Identifier: MIT
"""The support table: every cell says something, its row names tests that are there, and it agrees
with what the package has for that architecture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache

import pytest

from ftpatch.arch import architectures, supports
from ftpatch.layout.built import built
from tests.support.doc_pages import ROOT

PAGE = ROOT / "docs" / "support.md"
NAMES = {
    "x86_64": ("x86_64", "amd64"),
    "i386": ("i386", "686"),
    "arm64": ("arm64", "aarch64"),
    "riscv64": ("riscv64",),
    "s390x": ("s390x",),
    "ppc64le": ("ppc64le", "ppc64el"),
    "loongarch64": ("loongarch64", "loong64"),
    "arm": ("arm-", "-arm]", "[arm]", "test_arm", "armhf", "thumb", "[a32", "[t32"),
}
"""Words by which cases of tests name an architecture."""
NATIVE = "x86_64"
"""That of the tests which name none."""
REASON = re.compile(r"^\[([a-z])\]$")


def _has_stub(name: str) -> Callable[[str], bool]:
    return lambda arch: (built() / arch / f"{name}.elf").is_file()


HELD: dict[str, Callable[[str], bool]] = {
    "kernel traced from its first C function on": lambda arch: supports(arch, "boot"),
    "... its variables watched": lambda arch: supports(arch, "boot", "gdb_stub"),
    "... with probes in it": lambda arch: supports(arch, "kernel_probe"),
    "kernel in memory or in a dump, compared": lambda arch: supports(arch, "text_patching"),
    "program traced": _has_stub("function_graph"),
    "... its calls of libraries": lambda arch: supports(arch, "plt_thunks"),
    "... with a stub that takes registers": _has_stub("user_regs"),
    "program probed": _has_stub("probes"),
    "its variables watched": _has_stub("watch"),
    "running process traced, probed": lambda arch: supports(arch, "injected_call"),
}
"""What the package has where a row's cell is no reason."""


def _rows() -> tuple[list[str], list[list[str]]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, *rows = cells
    return head, [row for row in rows if set(row[0]) != {"-"}]


def _tests(row: list[str]) -> list[str]:
    return re.findall(r"`([\w/]+)`", row[-1])


@cache
def _collected() -> dict[str, list[str]]:
    """The cases of the tests that the table names, without those on kernels: collecting these
    fetches kernels."""
    named = {name for row in _rows()[1] for name in _tests(row)}
    files = [f"tests/{name}.py" for name in sorted(named) if not name.startswith("kernels/")]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    environment = {**os.environ, "FTPATCH_FULL": "1"}
    done = subprocess.run(
        [*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:]
    found = defaultdict[str, list[str]](list)
    for line in done.stdout.splitlines():
        if "::" in line:
            found[line.partition("::")[0].removeprefix("tests/").removesuffix(".py")].append(line)
    return found


def test_every_cell_says_something() -> None:
    head, rows = _rows()
    assert sorted(head[1:-1]) == sorted(arch.name for arch in architectures().values())
    given = set(re.findall(r"^\* \[([a-z])\] ", PAGE.read_text(), re.MULTILINE))
    used = set[str]()
    for row in rows:
        assert len(row) == len(head) and all(row), row[0]
        assert not {"-", "yes"} & set(row[1:-1]), row[0]
        used |= {found[1] for cell in row[1:-1] if (found := REASON.match(cell))}
    assert used == given


def test_every_row_names_its_tests() -> None:
    for row in _rows()[1]:
        assert _tests(row), row[0]
        for name in _tests(row):
            assert (ROOT / "tests" / f"{name}.py").is_file(), name


def test_the_package_agrees() -> None:
    head, rows = _rows()
    known = {row[0]: row for row in rows}
    assert known.keys() >= HELD.keys()
    for words, held in HELD.items():
        for arch, cell in zip(head[1:-1], known[words][1:-1], strict=True):
            assert held(arch) != bool(REASON.match(cell)), (words, arch)


@pytest.mark.parametrize("arch", [arch for arch in NAMES if arch != NATIVE])
def test_cases_of_the_architecture_are_there(arch: str) -> None:
    head, rows = _rows()
    for row in rows:
        cell, names = row[head.index(arch)], _tests(row)
        if REASON.match(cell) or any(name.startswith("kernels/") for name in names):
            continue
        cases = [case for name in names for case in _collected()[name]]
        assert any(word in case for case in cases for word in NAMES[arch]), (row[0], arch)
