# SPDX-License-Identifier: MIT
"""Writing: whole or not at all, nothing but the output, never more rights than before."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.samples import sample

Copied = Callable[[str], Path]


def _listing(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["pad", "vmlinux-x86_64", "vmlinux-arm64-callops", "i386-pad"])
def test_the_input_stays_and_the_output_stands_beside_it(name: str, copy_of: Copied) -> None:
    path = copy_of(name)
    before, times = path.read_bytes(), path.stat().st_mtime_ns
    result = ftpatch("enable", path, *(["-f", "vfs_*"] if "vmlinux" in name else []))
    assert result.code == 0 and result.out.endswith(f"wrote {path}.ftpatch\n")
    assert path.read_bytes() == before and path.stat().st_mtime_ns == times
    assert _listing(path.parent) == {name, f"{name}.ftpatch"}
    after = path.with_name(f"{name}.ftpatch").read_bytes()
    assert after[: len(before)] != before and len(after) > len(before)


def test_output_and_in_place(copy_of: Copied) -> None:
    path = copy_of("pad")
    other = path.with_name("other")
    assert ftpatch("enable", path, "-o", other).code == 0
    assert _listing(path.parent) == {"pad", "other"}
    inode = path.stat().st_ino
    assert ftpatch("enable", path, "--in-place").code == 0
    assert path.read_bytes() == other.read_bytes() and path.stat().st_ino != inode
    assert _listing(path.parent) == {"pad", "other"}
    assert ftpatch("enable", path, "--in-place", "-o", other).code == 2


def test_an_output_that_exists_needs_force(copy_of: Copied) -> None:
    path = copy_of("pad")
    output = path.with_name("pad.ftpatch")
    output.write_bytes(b"precious")
    result = ftpatch("enable", path)
    assert result.code == 2 and "--force" in result.err
    assert output.read_bytes() == b"precious"
    assert ftpatch("enable", path, "--force").code == 0
    assert output.read_bytes()[:4] == b"\x7fELF"
    assert _listing(path.parent) == {"pad", "pad.ftpatch"}


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_an_output_that_is_a_link_is_refused(force: list[str], copy_of: Copied) -> None:
    path = copy_of("pad")
    precious, link = path.with_name("precious"), path.with_name("output")
    precious.write_bytes(b"precious")
    for target in (precious, path.with_name("dangling")):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        result = ftpatch("enable", path, "-o", link, *force)
        assert result.code == 2 and "is a symbolic link" in result.err
        assert link.is_symlink()
    assert precious.read_bytes() == b"precious"
    assert _listing(path.parent) == {"pad", "precious", "output"}


def test_an_input_may_be_a_link_but_not_in_place(copy_of: Copied) -> None:
    path = copy_of("pad")
    link = path.with_name("link")
    link.symlink_to(path)
    assert ftpatch("enable", link).code == 0
    assert not path.with_name("link.ftpatch").is_symlink()
    before = path.read_bytes()
    assert ftpatch("enable", link, "--in-place").code == 2
    assert link.is_symlink() and path.read_bytes() == before


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_an_output_that_is_the_input_is_refused(force: list[str], copy_of: Copied) -> None:
    path = copy_of("pad")
    hard = path.with_name("hard")
    hard.hardlink_to(path)
    before = path.read_bytes()
    assert ftpatch("enable", path, "-o", hard, *force).code == 2
    assert ftpatch("enable", path, "-o", path.parent, *force).code == 2
    assert path.read_bytes() == before and _listing(path.parent) == {"pad", "hard"}


def test_an_output_that_is_no_file_is_refused(copy_of: Copied) -> None:
    path = copy_of("pad")
    fifo = path.with_name("fifo")
    os.mkfifo(fifo)
    assert ftpatch("enable", path, "-o", fifo, "--force").code == 2
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize("way", [[], ["--in-place"], ["--force"]])
def test_the_file_is_synced_before_it_has_its_name(
    way: list[str], copy_of: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash could leave the new name with nothing behind it."""
    path = copy_of("pad")
    output = path if way == ["--in-place"] else path.with_name("pad.ftpatch")
    before = path.read_bytes()
    seen = []

    def fsync(fd: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        seen.append((is_folder, output.exists() and output.read_bytes() != before))

    monkeypatch.setattr(os, "fsync", fsync)
    assert ftpatch("enable", path, *way, sync=True).code == 0
    assert seen == [(False, False), (True, True)]


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o400, 0o777, 0o1755])
@pytest.mark.parametrize("way", [[], ["--in-place"], ["--force"]])
def test_permissions_are_kept(mode: int, way: list[str], copy_of: Copied) -> None:
    path = copy_of("pad")
    path.chmod(mode)
    output = path if way == ["--in-place"] else path.with_name("pad.ftpatch")
    if way == ["--force"]:
        output.touch(0o600)
    assert ftpatch("enable", path, *way).code == 0
    assert stat.S_IMODE(output.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_is_kept(copy_of: Copied) -> None:
    path = copy_of("pad")
    os.chown(path, 65534, 65533)
    assert ftpatch("enable", path).code == ftpatch("enable", path, "--in-place").code == 0
    for output in (path, path.with_name("pad.ftpatch")):
        assert (output.stat().st_uid, output.stat().st_gid) == (65534, 65533)


@pytest.mark.parametrize("bit", [stat.S_ISUID, stat.S_ISGID])
@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_a_privileged_input_is_refused(bit: int, verb: str, copy_of: Copied) -> None:
    path = copy_of("pad")
    path.chmod(0o755 | bit)
    if not path.stat().st_mode & bit:
        pytest.skip("this file system keeps no such bit")
    result = ftpatch(verb, path)
    assert result.code == 2 and "--allow-setuid" in result.err
    assert _listing(path.parent) == {"pad"}
    for way in ([], ["--in-place"]):
        assert ftpatch(verb, path, "--allow-setuid", *way).code == 0
    for output in (path, path.with_name("pad.ftpatch")):
        assert stat.S_IMODE(output.stat().st_mode) == 0o755


def test_capabilities_are_privileges(copy_of: Copied) -> None:
    path = copy_of("pad")
    # vfs_cap_data, revision 2: cap_net_raw, permitted.
    value = bytes.fromhex("0100000200200000000000000000000000000000")
    try:
        os.setxattr(path, "security.capability", value)
    except OSError as error:
        pytest.skip(f"capabilities cannot be set here: {error.strerror}")
    assert ftpatch("enable", path).code == 2
    assert ftpatch("enable", path, "--allow-setuid").code == 0
    assert "security.capability" not in os.listxattr(path.with_name("pad.ftpatch"))


def test_without_a_change_the_file_is_written_without_a_journal(copy_of: Copied) -> None:
    path = copy_of("pad")
    assert ftpatch("disable", path).code == 0
    assert path.with_name("pad.ftpatch").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("verb", [["enable"], ["disable", "--nop", "jmp"]])
def test_a_dry_run_writes_nothing(verb: list[str], copy_of: Copied) -> None:
    path = copy_of("fentry")
    before = path.read_bytes(), path.stat().st_mtime_ns
    result = ftpatch(*verb, path, "--dry-run")
    assert result.code == 0 and "nothing was written" in result.out and "17 changed" in result.out
    result = ftpatch(*verb, path, "--dry-run", "--json", "--in-place")
    assert result.only["output"] is None and result.only["changed"] == 17
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert _listing(path.parent) == {"fentry"}


def test_one_refused_site_and_nothing_is_written(copy_of: Copied) -> None:
    path = copy_of("pad")
    data = bytearray(path.read_bytes())
    row = ftpatch("list", "--json", path).json[3]
    data[row["offset"] + 2] ^= 0xFF
    path.write_bytes(data)
    for way in ([], ["--in-place"], ["-o", path.with_name("other")]):
        result = ftpatch("enable", path, *way)
        assert result.code == 1 and "failed to modify" in result.err
        assert path.read_bytes() == data and _listing(path.parent) == {"pad"}
    failed = ftpatch("enable", path, "--json").only["failed"]
    assert [int(site["ip"], 16) for site in failed] == [int(row["ip"], 16)]


def test_a_refusal_leaves_the_old_output(copy_of: Copied) -> None:
    path = copy_of("pad")
    output = path.with_name("pad.ftpatch")
    output.write_bytes(b"precious")
    data = bytearray(path.read_bytes())
    data[ftpatch("list", "--json", path).json[0]["offset"]] = 0xCC
    path.write_bytes(data)
    assert ftpatch("enable", path, "--force").code == 1
    assert output.read_bytes() == b"precious"
    assert _listing(path.parent) == {"pad", "pad.ftpatch"}


def test_samples_are_what_they_were() -> None:
    """No test of this suite may write to them."""
    import hashlib
    import json

    from tests.support.samples import FOLDER

    for entry in json.loads((FOLDER / "manifest.json").read_text()):
        data = sample(entry["name"]).data
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
