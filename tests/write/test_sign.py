# SPDX-License-Identifier: MIT
"""--sign: what the user's command may do to a changed kernel, and what becomes of it."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch
from tests.support.raw_kernels import raw_kernel

PE, CERTIFICATE = 0x40, b"certificate".ljust(24, b"\0")
CHECKSUM, DIRECTORY = PE + 24 + 64, PE + 24 + 112 + 8 * 4
SIGNER = f"""
import struct, sys
path = sys.argv[1]
data = bytearray(open(path, "rb").read())
data += bytes(-len(data) % 8)
struct.pack_into("<II", data, {DIRECTORY}, len(data), {len(CERTIFICATE)})
struct.pack_into("<I", data, {CHECKSUM}, 0x1234)
MORE
data += {CERTIFICATE!r}
open(path, "wb").write(data)
"""


def _image(tmp_path: Path) -> Path:
    """An arm64 Image with a PE header, as kernels for UEFI have."""
    data = bytearray(raw_kernel("arm64-rela", nulls=2).data)
    data[:2] = b"MZ"
    struct.pack_into("<I", data, 0x3C, PE)
    header = b"PE\0\0" + bytes(20) + b"\x0b\x02" + bytes(106) + struct.pack("<I", 6) + bytes(48)
    data[PE : PE + len(header)] = header
    path = tmp_path / "Image"
    path.write_bytes(data)
    return path


def _signer(tmp_path: Path, more: str = "") -> str:
    path = tmp_path / "signer.py"
    path.write_text(SIGNER.replace("MORE", more))
    return f"{sys.executable} {path}"


def _refused(result: Result, words: str) -> None:
    assert result.code == 2 and words in result.err and result.err.count("\n") == 1, result


def test_a_kernel_is_signed_changed_again_and_undone(tmp_path: Path) -> None:
    path, out = _image(tmp_path), tmp_path / "out"
    before = path.read_bytes()
    sign = _signer(tmp_path)
    assert ftpatch("enable", path, "-f", "vfs_*", "--sign", f"{sign} {{}}", "-o", out).code == 0
    first = out.read_bytes()
    assert first.endswith(CERTIFICATE) and path.read_bytes() == before
    assert ftpatch("status", "--json", out).only["states"]["call"] == 2
    _refused(ftpatch("enable", out, "--in-place"), "use --strip-signature or --sign")
    assert ftpatch("enable", out, "--in-place", "--sign", sign).code == 0
    assert out.read_bytes() != first and out.read_bytes().endswith(CERTIFICATE)
    assert ftpatch("undo", out).code == 0 and out.read_bytes() == first
    assert ftpatch("undo", out).code == 0 and out.read_bytes() == before


def test_the_signature_that_it_had_comes_back(tmp_path: Path) -> None:
    path = _image(tmp_path)
    subprocess.run([*_signer(tmp_path).split(), str(path)], check=True)
    before = path.read_bytes()
    assert ftpatch("status", path).code == 0 and ftpatch("check", path).code == 0
    _refused(ftpatch("enable", path, "--in-place"), "the kernel is signed")
    assert path.read_bytes() == before
    assert ftpatch("enable", path, "--in-place", "--strip-signature").code == 0
    after = path.read_bytes()
    assert CERTIFICATE not in after
    assert not any(after[CHECKSUM : CHECKSUM + 4] + after[DIRECTORY : DIRECTORY + 8])
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/nonexistent/signer", "/nonexistent/signer: No such file"),
        ("false", "false: exit status 1"),
        ("sh -c 'echo no key >&2; exit 3'", "no key"),
        ("true", "left no signature"),
        ("'", "No closing quotation"),
        ("", "without a command"),
    ],
)
def test_a_command_that_does_not_sign(command: str, words: str, tmp_path: Path) -> None:
    path, out = _image(tmp_path), tmp_path / "out"
    _refused(ftpatch("enable", path, "--sign", command, "-o", out), words)
    assert not out.exists()


@pytest.mark.parametrize("more", ["data[600] ^= 1", "data += bytes(8)", "del data[-16:-8]"])
def test_a_command_that_changes_more(more: str, tmp_path: Path) -> None:
    path, out = _image(tmp_path), tmp_path / "out"
    result = ftpatch("enable", path, "--sign", _signer(tmp_path, more), "-o", out)
    assert result.code == 2 and "cannot sign" in result.err and not out.exists()


def test_a_file_without_a_place_for_it(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "samples/built/vmlinux-x86_64"
    path = tmp_path / "vmlinux"
    shutil.copyfile(source, path)
    result = ftpatch("enable", path, "--sign", _signer(tmp_path), "-o", tmp_path / "out")
    _refused(result, "no PE header")
    _refused(ftpatch("enable", tmp_path, "--sign", "true", "-o", tmp_path / "tree"), "directory")
