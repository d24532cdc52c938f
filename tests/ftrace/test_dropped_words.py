# SPDX-License-Identifier: MIT
"""What is said of sites whose record was dropped, by what stands there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ftpatch.ftrace.dropped_records import Unrecorded
from tests.support.command import ftpatch

TRACED, IGNORED, OUT, POKED = Unrecorded


@pytest.mark.parametrize(
    ("name", "words", "kind"),
    [
        ("vmlinux-x86_64", ("enable",), TRACED),
        ("vmlinux-x86_64", ("enable", "--to", "ftrace_stub"), IGNORED),
        ("vmlinux-x86_64", ("disable",), POKED),
        ("vmlinux-x86_64", ("disable", "--nop", "jmp"), OUT),
        ("vmlinux-i386", ("enable",), TRACED),
        ("vmlinux-i386", ("disable",), OUT),
        ("vmlinux-arm64", ("enable",), TRACED),
        ("vmlinux-arm64-callops", ("enable",), IGNORED),
    ],
)
def test_a_line_for_what_stands_there(
    name: str, words: tuple[str, ...], kind: Unrecorded, copy_of: Callable[[str], Path]
) -> None:
    """The summary says it, and check names the functions, in all formats; a deliberate edit is no
    finding."""
    path = copy_of(name)
    done = ftpatch(words[0], "--in-place", "-f", "vfs_read", "-f", "vfs_write", *words[1:], path)
    assert f"\n2 records dropped: {kind}\n" in done.out
    told = f"note: 2 sites: record dropped: {kind}: "
    result = ftpatch("check", path)
    assert result.code == 0
    (line,) = (line for line in result.out.splitlines() if ": note: " in line)
    assert line.startswith(f"{path}: {told}")
    assert set(line.rpartition(": ")[2].split(", ")) == {"vfs_read", "vfs_write"}
    row = ftpatch("check", "--json", path).only
    assert row["note"] == f"record dropped: {kind}"
    assert {site["symbol"].rpartition("+")[0] for site in row["sites"]} == {"vfs_read", "vfs_write"}
    assert "::notice file=" in ftpatch("check", "--format", "github", path).out
    junit = ftpatch("check", "--format", "junit", path)
    assert junit.code == 0 and f"<system-out>{told[:30]}" in junit.out
    assert sum(": note: 0x" in line for line in ftpatch("check", "-v", path).out.splitlines()) == 2
    assert ftpatch("undo", "--all", path).code == 0
    assert "note" not in ftpatch("check", path).out
