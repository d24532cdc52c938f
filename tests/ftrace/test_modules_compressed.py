# SPDX-License-Identifier: MIT
"""Compressed modules: patched inside, packed again so that kernels and the packers' tools read."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import zstandard

from ftpatch.image.compression import kind_of
from ftpatch.image.payload import read_payload
from tests.support.command import ftpatch
from tests.support.images import fentry_kernel
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, signed
from tests.support.samples import sample


def _zstd_stream(data: bytes) -> bytes:
    """As `zstd` packs a pipe: without a size in the header."""
    packer = zstandard.ZstdCompressor(level=19).compressobj()
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gz": (".gz", gzip.compress),
    "gz-named": (
        ".gz",
        lambda data: (
            gzip.compress(data)[:3]
            + b"\x08"
            + gzip.compress(data)[4:10]
            + b"demo.ko\0"
            + gzip.compress(data)[10:]
        ),
    ),
    "xz": (".xz", partial(lzma.compress, check=lzma.CHECK_CRC32)),
    "xz-crc64": (".xz", partial(lzma.compress, preset=9)),
    "zst": (".zst", zstandard.compress),
    "zst-stream": (".zst", _zstd_stream),
}
UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}
TOOLS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
every_packer = pytest.mark.parametrize("packer", PACKERS)
every_form = pytest.mark.parametrize("name", FORMS)


def _packed(folder: Path, packer: str, data: bytes) -> Path:
    suffix, pack = PACKERS[packer]
    path = folder / f"demo.ko{suffix}"
    path.write_bytes(pack(data))
    return path


def _held(path: Path) -> bytes:
    return UNPACK[path.suffix](path.read_bytes())


@every_packer
@every_form
def test_round_trip(packer: str, name: str, tmp_path: Path) -> None:
    """Inside it is what comes of the same commands on the unpacked module."""
    data = module(FORMS[name]).build()
    path, plain = _packed(tmp_path, packer, data), tmp_path / "plain.ko"
    plain.write_bytes(data)
    written = [path.read_bytes()]
    for command in (
        ["enable", "--to", "new_one", "-f", "*_it"],
        ["enable", "--to", "new_two", "-f", "read_it", "-f", "once"],
        ["disable", "-f", "open_it"],
        ["enable", "--to", "close_it", "-f", "set_up", "--keep-records"],
    ):
        for target in (path, plain):
            result = ftpatch(*command, "--in-place", target)
            assert result.code == 0, result
        # The journal has more to tell, so what is laid in behind it lies further on.
        told = [
            re.sub(r'"path": "[^"]*"', "", ftpatch("list", "--json", p).out) for p in (path, plain)
        ]
        assert told[0] == told[1]
        written.append(path.read_bytes())
    for verb in ("status", "list", "check"):
        first, second = (ftpatch(verb, "--json", target) for target in (path, plain))
        assert first.code == second.code
        assert first.out.replace(path.name, "") == second.out.replace(plain.name, "")
    everything = path.with_name("all.ko" + path.suffix)
    assert ftpatch("undo", "--all", path, "-o", everything).code == 0
    assert everything.read_bytes() == written[0]
    for _ in range(4):
        assert ftpatch("undo", path).code == ftpatch("undo", plain).code == 0
        assert written.pop() and path.read_bytes() == written[-1]
    assert _held(path) == plain.read_bytes() == data and ftpatch("undo", path).code == 2


@every_packer
def test_the_tools_read_it(packer: str, tmp_path: Path) -> None:
    path = _packed(tmp_path, packer, signed(module(FORMS["x86_64"]).build()))
    tool = TOOLS[path.suffix]
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    assert ftpatch("disable", "--in-place", path, "--strip-signature").code == 0
    subprocess.run([tool, "-t", "-q", str(path)], check=True, capture_output=True)
    shown = subprocess.run([tool, "-dc", str(path)], check=True, capture_output=True).stdout
    assert shown == _held(path) and shown[:4] == b"\x7fELF"


def test_the_kernel_reads_it(tmp_path: Path) -> None:
    """kernel/module/decompress.c: of xz CRC32 only, and a dictionary it can allocate; of gzip no
    optional field but the name; of zstd one frame with its size."""
    data = module(FORMS["x86_64"]).build()
    for packer in PACKERS:
        path = _packed(tmp_path, packer, data)
        assert ftpatch("disable", "--in-place", path).code == 0
        written = path.read_bytes()
        if path.suffix == ".gz":
            assert written[:4] == b"\x1f\x8b\x08\x00" and written[4:8] == bytes(4)
        elif path.suffix == ".xz":
            assert written[6:8] == b"\x00\x01"  # CRC32
            assert written[14:16] == b"\x21\x01" and written[16] <= 16  # LZMA2, at most 1 MiB
            assert lzma.decompress(written, memlimit=2 << 20)[:4] == b"\x7fELF"
        else:
            frame = zstandard.get_frame_parameters(written)
            assert frame.content_size == len(_held(path)) and frame.window_size <= 8 << 20


@every_packer
def test_nothing_to_change(packer: str, tmp_path: Path) -> None:
    """Then it is not packed anew: the file is as it was, whatever packed it."""
    path = _packed(tmp_path, packer, module(FORMS["arm64"]).build())
    data = path.read_bytes()
    assert ftpatch("disable", "--in-place", path).code == 0
    assert path.read_bytes() == data
    other = tmp_path / "other"
    assert "an unmodified copy" in ftpatch("disable", path, "-o", other).out
    assert other.read_bytes() == data


@every_packer
def test_damage_is_told(packer: str, tmp_path: Path) -> None:
    path = _packed(tmp_path, packer, module(FORMS["x86_64"]).build())
    good = path.read_bytes()
    for data in (good[:-1], good[: len(good) // 2], good[:12], good + b"behind"):
        path.write_bytes(data)
        for verb in ("status", "check", "disable", "undo", "diff"):
            result = ftpatch(verb, path)
            assert result.code == 2 and result.err.count("\n") == 1, (verb, result)
        assert path.read_bytes() == data
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@every_packer
def test_a_bomb_is_cut_off(packer: str, tmp_path: Path) -> None:
    """Of what unpacks to more than a limit, no more is taken (the limit is 512 MiB; here less)."""
    path = _packed(tmp_path, packer, module(FORMS["x86_64"]).build() + bytes(8 << 20))
    limited = partial(read_payload, limit=8 << 20)
    with mock.patch("ftpatch.image.prefetch.read_payload", limited):
        for verb in ("status", "disable", "undo"):
            result = ftpatch(verb, path)
            assert result.code == 2 and "unpacks to more than 8388608 bytes" in result.err
    assert ftpatch("status", path).code == 0


@pytest.mark.parametrize("suffix", [".lz4", ".bz2", ".lzma"])
def test_kinds_that_no_kernel_unpacks_modules_of(suffix: str, tmp_path: Path) -> None:
    """They can be looked at."""
    import bz2

    import lz4.frame

    pack = {
        ".lz4": lz4.frame.compress,
        ".bz2": bz2.compress,
        ".lzma": partial(lzma.compress, format=lzma.FORMAT_ALONE),
    }[suffix]
    path = tmp_path / f"demo.ko{suffix}"
    path.write_bytes(pack(module(FORMS["x86_64"]).build()))
    assert ftpatch("status", "--json", path).only["sites"] == 6
    for command in (["disable"], ["enable", "--to", "printk"]):
        result = ftpatch(*command, path)
        assert result.code == 2 and result.err.count("\n") == 1 and "internal" not in result.err
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("order", ["gz xz", "xz zst", "gz gz"])
def test_two_layers(order: str, tmp_path: Path) -> None:
    """Neither is lost."""
    outer, inner = order.split()
    data = PACKERS[inner][1](module(FORMS["x86_64"]).build())
    path = _packed(tmp_path, outer, data)
    assert ftpatch("status", "--json", path).only["sites"] == 6
    before = path.read_bytes()
    assert ftpatch("disable", "--in-place", path).code == 0
    inside = tmp_path / "demo.ko"
    inside.write_bytes(module(FORMS["x86_64"]).build())
    assert ftpatch("disable", "--in-place", inside).code == 0
    assert kind_of(memoryview(path.read_bytes())) == kind_of(memoryview(before))
    assert kind_of(memoryview(_held(path))) == kind_of(memoryview(data))
    assert ftpatch("list", "--json", path).json == ftpatch("list", "--json", inside).json
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == before


@pytest.mark.parametrize("packer", ["gz", "xz", "zst"])
@pytest.mark.parametrize("what", ["nothing", "text", "elf", "kernel", "program"])
def test_what_else_is_inside(packer: str, what: str, tmp_path: Path) -> None:
    held = {
        "nothing": b"",
        "text": b"no module at all\n" * 9,
        "elf": b"\x7fELF",
        "kernel": fentry_kernel().build(),
        "program": sample("pad").data,
    }[what]
    path = _packed(tmp_path, packer, held)
    data = path.read_bytes()
    image = what in ("kernel", "program")
    assert ftpatch("status", path).code == (0 if image else 2)
    verb = "enable" if what == "program" else "disable"
    words = ["--tracer", "function"] if what == "program" else []
    result = ftpatch(verb, *words, "--in-place", path)
    if image:
        assert (result.code, result.err) == (0, "") and path.read_bytes() != data
        assert ftpatch("undo", path).code == 0 and path.read_bytes() == data
        return
    assert result.code == 2 and result.err.count("\n") == 1 and path.read_bytes() == data


def test_its_name_does_not_matter(tmp_path: Path) -> None:
    """Packed is what begins like it."""
    path = tmp_path / "demo.ko"
    path.write_bytes(lzma.compress(module(FORMS["x86_64"]).build()))
    assert ftpatch("disable", "--in-place", path).code == 0
    assert lzma.decompress(path.read_bytes())[:4] == b"\x7fELF"
    path = tmp_path / "plain.ko.xz"
    path.write_bytes(module(FORMS["x86_64"]).build())
    assert ftpatch("disable", "--in-place", path).code == 0
    assert path.read_bytes()[:4] == b"\x7fELF"
