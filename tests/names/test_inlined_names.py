# SPDX-License-Identifier: MIT
"""A filter that names a function without an entry: gcc has inlined it, as nm and readelf show."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_process
from tests.support.padded import padded

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
SOURCE = """
static inline __attribute__((always_inline)) int add(int a, int b) { return a + b; }
static inline __attribute__((always_inline)) int add_both_of(int a) { return add(a, a); }
__attribute__((noinline)) int added(int a) { return add_both_of(a) + 1; }
int main(int argc, char **argv) { return added(argc) - 3; }
"""
SAID = "matches no site: inlined wherever it is called, or no function"


@pytest.mark.parametrize("name", ["add", "add_both_of"])
@pytest.mark.parametrize("dwarf", ["-gdwarf-4", "-gdwarf-5"])
def test_an_inlined_function_is_told_from_a_misspelt_one(
    name: str, dwarf: str, tmp_path: Path
) -> None:
    program = padded(tmp_path, SOURCE, dwarf)
    words = ["readelf", "--debug-dump=info", str(program)]
    dumped = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f" {name}\n" in dumped and "DW_TAG_inlined_subroutine" in dumped
    named = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    assert f" {name}\n" not in named
    for verb, code in (("list", 2), ("trace", 125)):
        done = ftpatch(verb, "-f", name, program)
        assert done.code == code and f"filter {name!r} {SAID}; " in done.err
    wrong = ftpatch("list", program, "-f", "addde")
    assert wrong.err.endswith("matches no site; did you mean added?\n")
    subprocess.run(["strip", "-g", program], check=True)
    assert SAID not in ftpatch("list", program, "-f", name).err, "nothing knows of it now"


IN_TRACE = "matches no function in the trace: inlined wherever it is called, or no function"
CLASSES = """
struct Cart {
    int sum = 0;
    inline __attribute__((always_inline)) void add(int n) { sum += n; }
    __attribute__((noipa)) int total() { return sum; }
    __attribute__((noipa)) int unused() { return -sum; }
};
int main(int argc, char **argv) { Cart cart; cart.add(argc); return argc > 9 ? cart.unused() :
    cart.total() - argc; }
"""


def test_in_a_report_as_well(tmp_path: Path) -> None:
    """Also of methods; one that was only not called is something else."""
    program, trace = tmp_path / "cart", tmp_path / "trace"
    (tmp_path / "cart.cc").write_text(CLASSES)
    words = [
        "g++",
        "-g",
        "-O1",
        "-fpatchable-function-entry=5",
        f"{program}.cc",
        "-o",
        str(program),
    ]
    subprocess.run(words, check=True)
    assert ftpatch_process("trace", "-o", trace, program).code == 0
    for option in ("--graph", "-f", "-F"):
        what = option if option == "--graph" else "filter"
        done = ftpatch("report", trace, option, "Cart::add")
        assert done.code == 2 and f"{what} 'Cart::add' {IN_TRACE}" in done.err, done.err
        for other in ("Cart::unused", "Cart::lost"):
            done = ftpatch("report", trace, option, other)
            assert done.code == 2 and "inlined" not in done.err, done.err


def test_a_function_without_a_pad_is_not_inlined(tmp_path: Path) -> None:
    plain = "__attribute__((patchable_function_entry(0))) int plain(void) { return 1; }"
    program = padded(tmp_path, f"{plain}\nint main(void) {{ return plain() - 1; }}", "-g")
    done = ftpatch("list", program, "-f", "plain")
    assert done.code == 2 and done.err.endswith("matches no site; see `ftpatch list`\n")
