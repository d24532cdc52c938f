# SPDX-License-Identifier: MIT
"""Names of templates in reports: short in text, as c++filt has them in what other tools read."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.trace_writer import ENTRY, EXIT, FUNCTIONS, STRIDE, Thread, TraceFile, program

pytestmark = pytest.mark.skipif(shutil.which("c++filt") is None, reason="needs c++filt")
MANGLED = {
    "main": "main",
    "_ZNSt6vectorIiSaIiEE9push_backEOi": "std::vector<…>::push_back(int&&)",
    "_ZN4shop4mostIdEET_S1_S1_": "shop::most<double>(double, double)",
    "_ZN4shop4mostISt6vectorIiSaIiEEEET_S3_S3_": "shop::most<…>(std::vector<…>, std::vector<…>)",
}
NAMES = [*MANGLED]
FULL = ["function_graph", "function", "profile", "histogram"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """main calls each of the others."""
    names = [*NAMES, *FUNCTIONS[len(NAMES) :]]
    thread = Thread(7).add(ENTRY, 5, 0)
    for number in range(1, len(NAMES)):
        at = number * STRIDE + 5
        thread.add(ENTRY, at, number * 100).add(EXIT, at, number * 100 + 50)
    thread.add(EXIT, 5, 1000)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog", names))}
    return TraceFile([thread], header=header).write(tmp_path / "trace")


def _whole() -> list[str]:
    words = ["c++filt", *NAMES]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("form", FULL)
def test_text_has_short_names(trace: Path, form: str) -> None:
    short, whole = [ftpatch("report", trace, "--format", form, *v) for v in ((), ("-v",))]
    assert short.code == whole.code == 0
    for name, brief in zip(_whole(), MANGLED.values(), strict=True):
        assert name in whole.out and brief in short.out
    assert "allocator" not in short.out and "…" not in whole.out
    assert "double shop" not in short.out and "> shop" not in short.out, "it is no part of the name"


def test_so_have_the_callers_of_one_and_two_runs(trace: Path) -> None:
    for words in (("--graph", "main"), ("--diff", trace)):
        short, whole = ftpatch("report", trace, *words), ftpatch("report", trace, *words, "-v")
        assert "std::vector<…>::push_back(int&&)" in short.out and "allocator" not in short.out
        assert all(name in whole.out for name in _whole())


@pytest.mark.parametrize("form", ["json", "folded", "html", "chrome"])
def test_other_tools_get_whole_names(trace: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    assert ftpatch("report", trace, "--format", form, "-o", out).code == 0
    text = out.read_text()
    for mark in "<>&":  # as scripts in a page have them
        text = text.replace(f"\\u{ord(mark):04x}", mark)
    for name in _whole():
        assert name in text or json.dumps(name)[1:-1] in text


def test_a_name_without_arguments_is_every_instance(trace: Path) -> None:
    """As gdb's `break shop::most` is."""
    result = ftpatch("report", trace, "--graph", "shop::most")
    assert result.code == 0
    callers = result.out.partition("# Callees")[0]
    assert [callers.count(MANGLED[name]) for name in NAMES] == [2, 0, 1, 1]
    one = ftpatch("report", trace, "--graph", "shop::most<double>").out
    assert "most<double>" in one and "most<…>" not in one
