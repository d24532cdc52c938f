# SPDX-License-Identifier: MIT
"""What people read, at 80 columns: the files in golden/.

FTPATCH_UPDATE_GOLDEN=1 writes them anew; then read the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch
from tests.support.samples import sample

GOLDEN = Path(__file__).parent.parent / "golden"
VERBS = ("status", "list", "check", "enable", "disable", "undo", "diff", "watch")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the output are names without a folder."""
    monkeypatch.chdir(tmp_path)


def _copy(name: str) -> Path:
    path = Path(name)
    path.write_bytes(sample(name).data)
    return path


def _same(name: str, *results: Result) -> None:
    text = "".join(f"{result.out}{result.err}[exit {result.code}]\n" for result in results)
    text = re.sub(r"\d+\.\d\d seconds", "N.NN seconds", text)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("FTPATCH_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs; FTPATCH_UPDATE_GOLDEN=1 writes it anew"


def test_help() -> None:
    for name, result in [("", ftpatch("--help")), *((v, ftpatch(v, "--help")) for v in VERBS)]:
        assert result.code == 0 and not result.err
        assert max(map(len, result.out.splitlines())) <= 80
        _same(f"help-{name or 'ftpatch'}", result)
        assert ftpatch(*[name] * bool(name), "-h").out == result.out


@pytest.mark.parametrize("name", ["vmlinux-x86_64", "fentry", "vmlinux-arm64-callops"])
def test_status(name: str) -> None:
    _same(f"status-{name}", ftpatch("status", _copy(name)))


def test_status_of_a_patched_image() -> None:
    path = _copy("vmlinux-x86_64")
    assert ftpatch("enable", "--in-place", path, "-f", "vfs_*").code == 0
    assert ftpatch("disable", "--in-place", path, "-f", "do_*").code == 0
    _same("status-patched", ftpatch("status", path))
    _same("list-patched", ftpatch("list", path))
    _same("check-patched", ftpatch("check", path))


def test_list() -> None:
    _same("list", ftpatch("list", _copy("vmlinux-x86_64"), "-f", "vfs_*"))


def test_check_of_a_nop_in_a_kernel() -> None:
    path = _copy("vmlinux-x86_64")
    keep = ["-f", "vfs_read", "--keep-records"]
    assert ftpatch("disable", "--in-place", path, *keep).code == 0
    _same("check-bug", ftpatch("check", path), ftpatch("check", "-q", path))


def test_enable_and_disable() -> None:
    path = _copy("vmlinux-x86_64")
    _same(
        "enable",
        ftpatch("enable", path, "-f", "vfs_*"),
        ftpatch("enable", path, "-f", "vfs_*"),
        ftpatch("enable", path, "-f", "vfs_*", "--dry-run"),
        ftpatch("enable", path, "-f", "nothing"),
        ftpatch("enable", path, "-f", "vfs_*", "--force", "-q"),
    )
    other = _copy("fentry")
    _same(
        "disable",
        ftpatch("disable", other, "--nop", "nop5"),
        ftpatch("disable", "--in-place", other),
        ftpatch("disable", "--in-place", other),
        ftpatch("disable", other, "--nop", "nop9"),
    )


def test_records_come_back() -> None:
    path = _copy("vmlinux-arm64")
    _same(
        "restore",
        ftpatch("enable", "--in-place", path, "-f", "vfs_*"),
        ftpatch("disable", "--in-place", path, "-f", "vfs_*"),
    )


def test_a_refused_site() -> None:
    path = _copy("vmlinux-x86_64")
    data = bytearray(path.read_bytes())
    for row in ftpatch("list", "--json", path, "-f", "vfs_*").json[:2]:
        data[row["offset"] + 1] ^= 0xFF
    path.write_bytes(data)
    _same("refused", ftpatch("enable", path, "-f", "vfs_*"))


def test_a_branch_that_cannot_reach() -> None:
    path = _copy("vmlinux-arm64-far-full")
    _same("cannot-reach", ftpatch("enable", path, "-f", "vfs_read"))
    other = _copy("vmlinux-arm64-callops")
    _same("no-relocation", ftpatch("enable", other))


def test_diff_and_undo() -> None:
    path = _copy("vmlinux-arm64-callops")
    assert ftpatch("enable", "--in-place", path, "-f", "vfs_read", "-f", "do_*").code == 0
    _same(
        "diff",
        ftpatch("diff", path),
        ftpatch("diff", "--stat", path),
        ftpatch("diff", "--limit", "1", path),
        ftpatch("diff", path, path),
        ftpatch("diff", "-q", path),
    )
    _same("undo", ftpatch("undo", path, "--dry-run"), ftpatch("undo", path), ftpatch("undo", path))


def test_verbose() -> None:
    path = _copy("vmlinux-x86_64")
    few = ["-f", "vfs_read", "-f", "vfs_write"]
    _same(
        "verbose",
        ftpatch("status", "-v", path),
        ftpatch("check", "-v", path),
        ftpatch("enable", "-v", path, *few),
        ftpatch("disable", "-v", path, "--force", *few),
    )


def test_usage_errors() -> None:
    path = _copy("pad")
    _same(
        "usage",
        ftpatch("nosuch"),
        ftpatch("enable", "--nope", path),
        ftpatch("enable"),
        ftpatch("enable", path, "--to", "missing"),
        ftpatch("enable", path, "--to", "0x10"),
        ftpatch("enable", path, "--site", "ftrace_call"),
        ftpatch("enable", path, "--site", "no_such_site"),
        ftpatch("status", path, "--format", "xml"),
        ftpatch("status", "missing"),
        ftpatch("diff", path),
        ftpatch("undo", path),
    )
