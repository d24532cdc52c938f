# SPDX-License-Identifier: MIT
"""What is no core, or not of that kernel: one line, exit 2, and nothing on standard output."""

from __future__ import annotations

import os
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch
from tests.support.cores import BASE, BUILD_ID, Kernel, core
from tests.support.elf_writer import Image

pytest.importorskip("drgn")
VERBS = ("status", "list", "check", "diff")
PAGE = 0x1000
NO_DUMP = "not a kernel's crash dump"
Made = Callable[[Path], object]


def _whole() -> bytes:
    return Kernel().core()


BAD: dict[str, tuple[Made, str]] = {
    "none": (lambda path: None, "cannot read: No such file or directory"),
    "empty": (lambda path: path.write_bytes(b""), NO_DUMP),
    "folder": (lambda path: path.mkdir(), "not a regular file; use a vmcore"),
    "fifo": (lambda path: os.mkfifo(path), "not a regular file; use a vmcore"),
    "random": (lambda path: path.write_bytes(random.Random(1).randbytes(9000)), NO_DUMP),
    "vmlinux": (lambda path: path.write_bytes(Kernel().file()), NO_DUMP),
    "elf-without-segments": (lambda path: path.write_bytes(Image().build()), NO_DUMP),
    "process": (lambda path: path.write_bytes(
        _whole().replace(b"VMCOREINFO", b"XXXXXXXXXX").replace(b"OSRELEASE", b"XXXXXXXXX")),
        "it has no VMCOREINFO"),
    "header": (lambda path: path.write_bytes(_whole()[:40]), NO_DUMP),
    "notes": (lambda path: path.write_bytes(_whole()[:300]), NO_DUMP),
    "no-text": (lambda path: path.write_bytes(_whole()[:0x1000]), "none of the kernel's text"),
    "another-kernel": (lambda path: path.write_bytes(Kernel(build_id=bytes(20)).core()),
                       f"build-id {bytes(20).hex()}, and "),
    "no-build-id": (lambda path: path.write_bytes(_whole().replace(b"BUILD-ID", b"XXXXX-ID")),
                    "its VMCOREINFO has no BUILD-ID"),
    "no-place": (lambda path: path.write_bytes(_whole().replace(b"_stext", b"_stexx")),
                 "does not say where the kernel is"),
}  # fmt: skip


def _refused(done: Result, words: str) -> None:
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("ftpatch: ") and done.err.count("\n") == 1
    assert words in done.err and "internal error" not in done.err


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", BAD)
def test_it_is_refused(tmp_path: Path, name: str, verb: str) -> None:
    make, words = BAD[name]
    (tmp_path / "vmlinux").write_bytes(Kernel().file())
    make(tmp_path / "core")
    done = ftpatch(verb, tmp_path / "vmlinux", "--core", tmp_path / "core")
    _refused(done, words)
    assert str(tmp_path / "core") in done.err


@pytest.mark.parametrize("verb", VERBS)
def test_without_drgn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    (tmp_path / "vmlinux").write_bytes(Kernel().file())
    (tmp_path / "core").write_bytes(Kernel().core())
    monkeypatch.setitem(sys.modules, "drgn", None)  # import drgn: ImportError
    done = ftpatch(verb, tmp_path / "vmlinux", "--core", tmp_path / "core")
    _refused(done, "reading a core needs drgn; install it: `pip install 'ftpatch[core]'`")


def test_a_core_without_a_note(tmp_path: Path) -> None:
    """As QEMU writes it: the text is somewhere in memory."""
    (tmp_path / "vmlinux").write_bytes(Kernel().file())
    (tmp_path / "core").write_bytes(_whole().replace(b"VMCOREINFO", b"XXXXXXXXXX"))
    done = ftpatch("status", tmp_path / "vmlinux", "--core", tmp_path / "core")
    assert (done.code, done.err) == (0, "") and "kernel 6.1.0-made" in done.out


def test_some_of_the_text(tmp_path: Path) -> None:
    """It is compared as far as the core has it, and the rest is told."""
    (tmp_path / "vmlinux").write_bytes(Kernel().file())
    text, data = Kernel().booted(), Kernel().data()
    (tmp_path / "core").write_bytes(core(BUILD_ID, [(BASE, text[:PAGE]), (BASE + 0x1A000, data)]))
    words = (tmp_path / "vmlinux", "--core", tmp_path / "core")
    assert ftpatch("status", *words, "--json").only["missing"] == len(text) - PAGE
    done = ftpatch("check", *words)
    assert done.code == 0 and f"{len(text) - PAGE} bytes are not in the core" in done.out


def _checked(tmp_path: Path, btf: bytes | None) -> Result:
    (tmp_path / "vmlinux").write_bytes(Kernel(btf).file())
    (tmp_path / "core").write_bytes(Kernel().core())
    return ftpatch("check", tmp_path / "vmlinux", "--core", tmp_path / "core")


def test_damaged_types(tmp_path: Path) -> None:
    whole = Kernel().btf
    assert whole is not None
    strings = whole.index(b"\0ftrace_ops")
    for btf, words in (
        (None, "no .BTF section"),
        (b"", "does not begin as one"),
        (b"\0\0" + whole[2:], "does not begin as one"),
        (whole[:-1], "cut off"),
        (whole[: strings // 2], "cut off"),
        (whole.replace(b"ftrace_ops", b"ftrace_opX"), "no struct ftrace_ops with func, next"),
        (whole.replace(b"replacementlen", b"replacementleX"), "no struct alt_instr with"),
        # struct jump_entry: its size, and where its last member lies
        (whole.replace(*_fields(whole, "jump_entry", 2, 0)), "no struct jump_entry"),
        (
            whole.replace(*_fields(whole, "jump_entry", 11, 8 * 15)),
            "struct jump_entry is too short",
        ),
    ):
        _refused(_checked(tmp_path, btf), words)


def _fields(btf: bytes, name: str, word: int, value: int) -> tuple[bytes, bytes]:
    """A structure's type in a .BTF section, and with another word in it."""
    types_size, strings = struct.unpack_from("<II", btf, 12)
    at = btf.index(name.encode() + b"\0", 24 + strings) - 24 - strings
    start = btf.index(struct.pack("<I", at), 24)
    old = btf[start : start + 12 + 36]
    assert start < 24 + types_size
    new = old[: 4 * word] + struct.pack("<I", value) + old[4 * word + 4 :]
    return old, new


def test_any_damaged_byte_of_the_types(tmp_path: Path) -> None:
    """It is refused, or what it says is not used."""
    whole = Kernel().btf
    assert whole is not None
    draw = random.Random(3)
    for at in sorted(draw.sample(range(len(whole)), 60)):
        value = draw.choice([0, 0xFF, whole[at] ^ 1 << draw.randrange(8)])
        done = _checked(tmp_path, whole[:at] + bytes([value]) + whole[at + 1 :])
        assert done.code in (0, 1, 2) and "internal error" not in done.err, (at, value, done.err)
        assert (done.code == 2) == bool(done.err)
