# SPDX-License-Identifier: MIT
"""undo after anything is the identity, on whole files: a compressed one is packed as it was.

xz, zstd and gzip make the files, at levels and with options of all kinds, and read what comes.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import struct
import subprocess
import zlib
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.core.journal import MAGIC, SEAL, TRAILER, outer
from tests.support.command import Result, ftpatch
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, signed
from tests.support.loose_trees import forest
from tests.support.samples import sample
from tests.support.sampling import scaled

PACKERS: dict[str, tuple[str, list[str]]] = {
    "modinst-xz": (".xz", ["xz", "--check=crc32", "--lzma2=dict=1MiB"]),
    "xz-0": (".xz", ["xz", "-0"]),
    "xz-9e": (".xz", ["xz", "-9e", "--check=sha256"]),
    "xz-x86": (".xz", ["xz", "--x86", "--lzma2=preset=6,lc=4,lp=0"]),
    "xz-blocks": (".xz", ["xz", "--block-size=1KiB", "-T2"]),
    "modinst-zstd": (".zst", ["zstd", "-T0", "-q"]),
    "zstd-19": (".zst", ["zstd", "-19", "-q", "--no-check"]),
    "zstd-22": (".zst", ["zstd", "--ultra", "-22", "-q", "--long=27"]),
    "zstd-fast": (".zst", ["zstd", "--fast=5", "-q"]),
    "modinst-gzip": (".gz", ["gzip", "-n", "-f"]),
    "gzip-1": (".gz", ["gzip", "-1"]),
    "gzip-named": (".gz", ["gzip", "-9N"]),
}
BEHIND = {
    "xz": bytes(8),  # padding
    "zstd": struct.pack("<II", 0x184D2A53, 5) + b"other",  # a frame to be skipped
    "gzip": b"",
}
TOOLS = {"xz": "xz", "zst": "zstd", "gz": "gzip"}
READS = {"xz": "+XZ", "zstd": "+ZSTD", "gzip": "+ZLIB"}
COMMANDS = [
    ["disable", "-f", "*_it"],
    ["disable", "-f", "open_it", "--keep-records"],
    ["enable", "--to", "new_one", "-f", "read_it"],
    ["enable", "--to", "printk"],
    ["enable", "--to", "close_it", "-f", "set_up", "-f", "once"],
]


def _pack(packer: str, data: bytes, *, behind: bool = False) -> tuple[str, bytes]:
    """A file's suffix and contents; ``behind``: with what may stand behind a stream."""
    suffix, command = PACKERS[packer]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    done = subprocess.run([*command, "-c"], input=data, capture_output=True, check=True)
    return suffix, done.stdout + (BEHIND[command[0]] if behind else b"")


@cache
def _kmod() -> str:
    """What kmod can unpack, as it is compiled."""
    if shutil.which("kmod") is None:
        return ""
    return subprocess.run(["kmod", "--version"], capture_output=True, text=True, check=True).stdout


def _done(*command: str | Path) -> Result:
    result = ftpatch(*command)
    assert result.code == 0, (command, result)
    return result


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("packer", PACKERS)
def test_the_very_file(packer: str, behind: bool, tmp_path: Path) -> None:
    """Each state that it had, with a hash like those of packages."""
    suffix, data = _pack(packer, signed(module(FORMS["x86_64"]).build()), behind=behind)
    path = tmp_path / f"demo.ko{suffix}"
    path.write_bytes(data)
    hashes = [hashlib.sha256(data).hexdigest()]
    for command in COMMANDS[2:]:
        _done(*command, path, "--in-place", "--strip-signature")
        hashes.append(hashlib.sha256(path.read_bytes()).hexdigest())
        tool = TOOLS[suffix[1:]]
        subprocess.run([tool, "-t", "-q", str(path)], check=True, capture_output=True)
        if READS[tool] in _kmod():
            subprocess.run(["modinfo", str(path)], check=True, capture_output=True)
    other = tmp_path / f"other.ko{suffix}"
    _done("undo", "--all", path, "-o", other)
    assert other.read_bytes() == data
    while hashes.pop() and hashes:
        assert ftpatch("undo", "--json", path).only["identical"] is True
        assert hashlib.sha256(path.read_bytes()).hexdigest() == hashes[-1]
    assert path.read_bytes() == data


def test_the_file_does_not_double(tmp_path: Path) -> None:
    """What is packed here can be had again; only what others packed is kept."""
    suffix, data = _pack("modinst-xz", module(FORMS["x86_64"]).build() + os.urandom(50_000))
    path = tmp_path / f"demo.ko{suffix}"
    path.write_bytes(data)
    sizes = []
    for i in range(6):
        _done("enable" if i % 2 else "disable", path, "--in-place", *["--to", "printk"] * (i % 2))
        sizes.append(path.stat().st_size)
    assert sizes[0] < 2.1 * len(data) and sizes[-1] < sizes[0] + 5_000


@settings(max_examples=scaled(25, 6))
@given(
    packer=st.sampled_from([*PACKERS, ""]),
    form=st.sampled_from(sorted(FORMS)),
    is_signed=st.booleans(),
    behind=st.booleans(),
    commands=st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=4),
)
def test_undo_is_the_identity(
    tmp_path_factory: pytest.TempPathFactory,
    packer: str,
    form: str,
    is_signed: bool,
    behind: bool,
    commands: list[list[str]],
) -> None:
    data = module(FORMS[form]).build()
    data = signed(data) if is_signed else data
    suffix, data = _pack(packer, data, behind=behind) if packer else ("", data)
    path = tmp_path_factory.mktemp("module") / f"demo.ko{suffix}"
    path.write_bytes(data)
    states = [data]
    for command in commands:
        _done(*command, path, "--in-place", "--strip-signature")
        if path.read_bytes() != states[-1]:
            states.append(path.read_bytes())
    whole = path.with_name("whole")
    if len(states) > 1:
        _done("undo", "--all", path, "-o", whole)
        assert whole.read_bytes() == data
    for state in states[-2::-1]:
        _done("undo", path)
        assert path.read_bytes() == state


@pytest.mark.parametrize("name", ["pad", "fentry", "vmlinux-x86_64", "vmlinux-arm64-callops"])
def test_other_images(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(sample(name).data)
    states = [path.read_bytes()]
    tracer = [] if "vmlinux" in name else [["enable", "--tracer", "function_graph"]]
    for command in [
        ["disable"],
        ["enable"],
        ["enable", "-f", "vfs_*"],
        *tracer,
        ["disable", "-f", "*a*"],
    ]:
        if ftpatch(*command, path, "--in-place").code == 0 and path.read_bytes() != states[-1]:
            states.append(path.read_bytes())
    assert len(states) > 1
    for state in states[-2::-1]:
        _done("undo", path)
        assert path.read_bytes() == state


def test_trees(tmp_path: Path) -> None:
    tree = forest(tmp_path / "tree", 24)
    before = {}
    for i, path in enumerate(sorted(tree.rglob("*.ko"))):
        suffix, data = _pack(list(PACKERS)[i % len(PACKERS)], path.read_bytes())
        path.unlink()
        packed = path.with_name(path.name + suffix)
        packed.write_bytes(data)
        before[packed] = data
    _done("disable", tree, "--in-place", "--strip-signature")
    assert sum(path.read_bytes() != data for path, data in before.items()) > 6
    assert "anew" not in _done("undo", tree).out
    assert {path: path.read_bytes() for path in before} == before


def test_what_others_packed_since(tmp_path: Path) -> None:
    """Unpacked, or packed in another way: what was there is not given back under a wrong name."""
    data = module(FORMS["x86_64"]).build()
    _, packed = _pack("modinst-xz", data)
    path = tmp_path / "demo.ko.xz"
    path.write_bytes(packed)
    _done("disable", path, "--in-place")
    inside = lzma.decompress(path.read_bytes())
    again, plain = tmp_path / "again.ko.xz", tmp_path / "demo.ko"
    again.write_bytes(lzma.compress(inside, preset=9))
    plain.write_bytes(inside)
    for each, expected in ((again, packed), (plain, data)):
        _done("undo", each)
        assert each.read_bytes() == expected
    suffix, other = _pack("gzip-1", inside)
    path = tmp_path / f"demo.ko{suffix}"
    path.write_bytes(other)
    said = _done("undo", path).out
    assert "gzip: recompressed: same contents, but the compressed bytes may differ" in said
    assert zlib.decompress(path.read_bytes(), 31) == data


def _repacked(path: Path, change: bytes, version: int = 2, held: bytes | None = None) -> None:
    """The file with another journal: what it keeps of the compressed file is ``change``."""
    inside = lzma.decompress(path.read_bytes())
    at = len(inside) - TRAILER.size - SEAL.size
    magic, _, count, length, cut, packed, _ = TRAILER.unpack_from(inside, at)
    assert magic == MAGIC
    raw = zlib.decompress(inside[at - packed : at])
    raw = raw[: len(raw) - len(held or b"") - 32] + change
    payload = zlib.compress(raw)
    head = TRAILER.pack(magic, version, count, length, cut, len(payload), len(raw))
    block = payload + head + SEAL.pack(zlib.crc32(head, zlib.crc32(payload)), 0)
    path.write_bytes(lzma.compress(inside[: at - packed] + block))


def test_journals_of_earlier_versions(tmp_path: Path) -> None:
    """They do not tell how the file was packed: what is inside is as before, and undo says so."""
    data = module(FORMS["x86_64"]).build()
    _, packed = _pack("xz-9e", data)
    path = tmp_path / "demo.ko.xz"
    path.write_bytes(packed)
    _done("disable", path, "--in-place")
    _repacked(path, b"", 1, packed)
    assert "recompressed" in _done("undo", path, "--dry-run").out
    assert ftpatch("diff", "--stat", path).code == 1
    result = _done("undo", path)
    assert "xz: recompressed" in result.out and lzma.decompress(path.read_bytes()) == data


@pytest.mark.parametrize("what", ["other", "digest", "damaged", "kind", "bomb", "short"])
def test_a_forged_journal(what: str, tmp_path: Path) -> None:
    """It may give back nothing but a file with what undo gives back."""
    data = module(FORMS["x86_64"]).build()
    _, packed = _pack("xz-9e", data)
    path = tmp_path / "demo.ko.xz"
    path.write_bytes(packed)
    _done("disable", path, "--in-place")
    forged = {
        "other": outer(path, lzma.compress(b"\x7fELF of another kind"), 10, known=False),
        "digest": bytes(32) + packed,
        "damaged": outer(path, packed[:-40] + bytes(40), 1 << 20, known=False),
        "kind": outer(path, zlib.compress(data, wbits=31), 1 << 20, known=False),
        "bomb": outer(path, lzma.compress(bytes(64 << 20)), 1 << 20, known=False),
        "short": b"short",
    }[what]
    _repacked(path, forged, held=packed)
    before = path.read_bytes()
    result = ftpatch("undo", path)
    if what == "kind":
        assert result.code == 0 and lzma.decompress(path.read_bytes()) == data
        return
    assert result.code == 2 and result.err.count("\n") == 1 and path.read_bytes() == before
    assert "journal" in result.err or "xz" in result.err


def test_the_original_names_what_was_written(tmp_path: Path) -> None:
    """`undo vmlinux` after `enable vmlinux`: the journal is in the output."""
    image = tmp_path / "vmlinux"
    shutil.copy(sample("vmlinux-x86_64").path, image)
    before = image.read_bytes()
    plain = ftpatch("undo", image)
    assert plain.code == 2 and "strip and objcopy remove it" in plain.err
    assert ftpatch("enable", image, "-f", "vfs_*").code == 0
    hinted = ftpatch("undo", image)
    assert hinted.code == 2 and hinted.err.endswith(f"; use `ftpatch undo {image}.ftpatch`\n")
    assert image.read_bytes() == before
    assert ftpatch(*hinted.err.split("`")[1].split()[1:]).code == 0
    assert Path(f"{image}.ftpatch").read_bytes() == before
    assert "strip and objcopy remove it" in ftpatch("undo", image).err, "it has none any more"


def test_a_second_undo_names_no_other_output(tmp_path: Path) -> None:
    """What was written from an output is not what the first undo left."""
    image = tmp_path / "vmlinux"
    shutil.copy(sample("vmlinux-x86_64").path, image)
    for one in (image, f"{image}.ftpatch"):
        assert ftpatch("enable", one, "-f", "vfs_*").code == 0
    assert ftpatch("enable", f"{image}.ftpatch", "-f", "fget", "--force").code == 0
    assert ftpatch("undo", f"{image}.ftpatch").code == 0
    again = ftpatch("undo", f"{image}.ftpatch")
    assert again == Result(
        2,
        "",
        f"ftpatch: {image}.ftpatch: no journal: nothing to undo; strip and objcopy remove it\n",
    )


def test_a_link_names_the_file_to_undo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("boot").mkdir()
    shutil.copy(sample("vmlinux-x86_64").path, "boot/vmlinux-6.1")
    Path("vmlinux").symlink_to("boot/vmlinux-6.1")
    none = "no journal: nothing to undo"
    assert ftpatch("undo", "vmlinux").err.startswith(f"ftpatch: vmlinux: {none}; strip")
    assert ftpatch("enable", "boot/vmlinux-6.1", "-f", "vfs_*").code == 0
    for written in ("boot/vmlinux-6.1.ftpatch", "vmlinux.ftpatch"):
        if written == "vmlinux.ftpatch":  # the link's own goes first
            assert ftpatch("enable", "vmlinux", "-f", "vfs_*").code == 0
        result = ftpatch("undo", "vmlinux")
        said = f"ftpatch: vmlinux: {none}; use `ftpatch undo {written}`\n"
        assert result == Result(2, "", said)
    Path("patched").symlink_to("boot/vmlinux-6.1.ftpatch")
    linked = "a symbolic link cannot be replaced in place; use its target, boot/vmlinux-6.1.ftpatch"
    assert ftpatch("undo", "patched").err == f"ftpatch: patched: {linked}\n"
    assert ftpatch("undo", "patched", "-o", "original").code == 0
    assert Path("original").read_bytes() == Path("vmlinux").read_bytes()
