# SPDX-License-Identifier: MIT
"""What ``check`` says that a kernel's ftrace_init will report: ftrace_bug's own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broken import check, put_code, put_words, words_of
from tests.support.command import ftpatch
from tests.support.elf_writer import Image
from tests.support.images import FUNCTIONS, arm64_rela_kernel, fentry_kernel, symbols_at

X86, ARM64 = 0xFFFF_FFFF_8100_0000, 0xFFFF_8000_8001_0000
P6 = bytes.fromhex("0f1f440000")


def _bug(image: Image, folder: Path) -> list[str]:
    rows = [row for row in check(image, folder).json if row["invariant"] == "ftrace_init"]
    assert len(rows) == 1
    text = ftpatch("check", folder / "image").out.splitlines()
    bug: list[str] = rows[0]["bug"].splitlines()
    assert text[text.index(bug[0]) :][: len(bug)] == bug, "the text says it in the same lines"
    assert text[-1].endswith("one ftrace bug")
    return bug


def test_ftrace_bug_of_a_nop(tmp_path: Path) -> None:
    at = symbols_at(X86)["vfs_read"]
    assert _bug(put_code(fentry_kernel(), at, P6), tmp_path) == [
        "------------[ ftrace bug ]------------",
        "ftrace failed to modify",
        "[<ffffffff81000040>] vfs_read+0x0/0x40",
        " actual:   0f:1f:44:00:00",
        " expected: e8:c3:ff:ff:ff",
        "Initializing ftrace call sites",
    ]


def test_ftrace_bug_of_arm64_shows_one_word_and_expects_nothing(tmp_path: Path) -> None:
    at = symbols_at(ARM64)["do_exit"]
    bl = bytes.fromhex("e9031eaa") + (0x94000000 | (ARM64 + 16 - at - 4) // 4 & 0x3FFFFFF).to_bytes(
        4, "little"
    )
    assert _bug(put_code(arm64_rela_kernel(), at, bl), tmp_path) == [
        "------------[ ftrace bug ]------------",
        "ftrace failed to modify",
        "[<ffff8000800100c4>] do_exit+0x4/0x40",
        " actual:   d3:ff:ff:97",
        "Initializing ftrace call sites",
    ]


def test_only_the_first_refusal_is_reported(tmp_path: Path) -> None:
    """ftrace_init stops there; which is first is decided by address, not by the table."""
    image = fentry_kernel()
    for name in ("schedule", "vfs_write"):
        put_code(image, symbols_at(X86)[name], P6)
    put_words(image, list(reversed(words_of(image))))
    assert "vfs_write" in _bug(image, tmp_path)[2]


@pytest.mark.parametrize("nulls", [0, 3])
def test_entries_are_counted_as_the_kernel_prints_them(nulls: int, tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(fentry_kernel(nulls=nulls).build())
    out = ftpatch("check", path).out.splitlines()
    assert out == [
        f"{path}: verdict: boots and ftrace works",
        f"{path}: ftrace: allocating {len(FUNCTIONS)} entries, no ftrace bug",
        f"{path}: every invariant holds",
    ]
