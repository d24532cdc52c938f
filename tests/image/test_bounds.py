# SPDX-License-Identifier: MIT
"""What hostile and odd inputs cost: memory of bombs, disk of holes, and no wait for what is no
file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lz4.block
import lz4.frame
import pytest
import zstandard

from tests.support.command import PATIENCE, ftpatch, patched_process
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module
from tests.support.samples import sample

Copied = Callable[[str], Path]
ZEROS = bytes(16 << 20)
MEMORY = 300 << 20
"""Bytes that a refusal may take, with all libraries loaded: 60 MB without anything to unpack."""


def _zstd_wide(data: bytes) -> bytes:
    """With a window of 128 MiB, of which the decoder keeps a second copy."""
    settings = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    parts = [packer.compress(data) for _ in range(40)]
    return bytes(bytearray().join([*parts, packer.flush()]))


def _lz4_legacy(data: bytes) -> bytes:
    block = bytes(lz4.block.compress(data[: 8 << 20], store_size=False))
    return b"\x02\x21\x4c\x18" + (len(block).to_bytes(4, "little") + block) * 80


BOMBS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "zst": (".zst", lambda data: zstandard.compress(data, 19) * 40),
    "zst-sized": (".zst", lambda data: zstandard.compress(data * 40, 1)),
    "zst-wide": (".zst", _zstd_wide),
    "gz": (".gz", lambda data: gzip.compress(data) * 40),
    "xz": (".xz", lambda data: lzma.compress(data, preset=0) * 40),
    "bz2": (".bz2", lambda data: bz2.compress(data) * 40),
    "lz4": (".lz4", lambda data: lz4.frame.compress(data) * 40),
    "lz4-legacy": (".lz4", _lz4_legacy),
    "lzma": (".lzma", lambda data: lzma.compress(data * 40, lzma.FORMAT_ALONE, preset=0)),
}


def _measured(*args: str | Path) -> tuple[int, str, int]:
    """Exit code, standard error, and the most memory that a command had (bytes). What wait4(2)
    tells would begin with what this process has."""
    script = (
        "import os, pathlib, re, sys\n"
        "end = os._exit\n"
        "def told(code):\n"
        "    print(re.search('VmHWM:[^0-9]*([0-9]+)', status.read_text())[1], flush=True)\n"
        "    end(code)\n"
        "os._exit, status = told, pathlib.Path('/proc/self/status')\n"
    )
    done = patched_process(script, *args)
    return done.code, done.err, int(done.out.split()[-1]) << 10


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_in_little_memory(kind: str, tmp_path: Path) -> None:
    suffix, pack = BOMBS[kind]
    path = tmp_path / f"demo.ko{suffix}"
    path.write_bytes(pack(ZEROS))
    assert path.stat().st_size < 4 << 20
    code, said, most = _measured("status", path)
    assert code == 2 and "unpacks to more than 536870912 bytes" in said and said.count("\n") == 1
    assert most < MEMORY, f"{most >> 20} MiB"


def test_much_of_the_same_is_no_bomb(tmp_path: Path) -> None:
    """What is counted first comes out as anything else."""
    from ftpatch.image.compression import unpack

    data = module(FORMS["x86_64"]).build() + bytes(90 << 20)
    for kind in ("gz", "zst", "xz"):
        packed = {
            "gz": lambda: gzip.compress(data, 1),
            "zst": lambda: zstandard.compress(data, 1),
            "xz": lambda: lzma.compress(data, preset=0),
        }[kind]()
        assert unpack("file", memoryview(packed), len(data)) == data


@pytest.mark.parametrize("way", ["new", "in-place", "undo", "mirror"])
def test_holes_stay_holes(way: str, tmp_path: Path) -> None:
    """5 GiB of which a few pages are on the disk."""
    tree = tmp_path / "tree"
    tree.mkdir()
    path = tree / "vmlinux"
    data = sample("vmlinux-x86_64").data
    path.write_bytes(data)
    size = 5 << 30
    with path.open("r+b") as file:
        file.truncate(size)
        file.seek(3 << 30)
        file.write(b"in the midst")
    if path.stat().st_blocks > 1 << 13:
        pytest.skip("this file system has no holes")
    begun = time.process_time()
    if way == "mirror":
        (tree / "demo.ko").write_bytes(module(FORMS["x86_64"]).build())
        assert ftpatch("disable", tree, "-o", tmp_path / "out").code == 0
        output = tmp_path / "out" / "vmlinux"
    else:
        output = path.with_name("vmlinux.ftpatch") if way == "new" else path
        assert ftpatch("enable", path, *(["--in-place"] if way != "new" else [])).code == 0
        if way == "undo":
            assert ftpatch("undo", path).code == 0
    held = output.stat()
    assert held.st_size >= size and held.st_blocks * 512 < 1 << 20
    assert time.process_time() - begun < 30
    with output.open("rb") as file:
        assert way in ("new", "in-place") or file.read(len(data)) == data
        file.seek((3 << 30) - 4)
        assert file.read(20) == bytes(4) + b"in the midst" + bytes(4)
        file.seek(size)
        assert (b"\x7fftpatch" in file.read()) == (way in ("new", "in-place"))


def test_holes_at_the_ends(tmp_path: Path) -> None:
    """Of every form: nothing but a hole, one before, one behind, one between."""
    from ftpatch.io.output import Copy

    page = b"x" * 4096
    for i, parts in enumerate(([], [(0, page)], [(1 << 20, page)], [(0, page), (9 << 20, b"y")])):
        path, target = tmp_path / f"{i}", tmp_path / f"{i}.copy"
        with path.open("wb") as file:
            for at, part in parts:
                file.seek(at)
                file.write(part)
            file.truncate(10 << 20)
        with Copy(path, target, force=False, allow_setuid=False, sync=False) as copy:
            copy.finish()
            copy.appear()
        assert target.read_bytes() == path.read_bytes()
        assert target.stat().st_blocks <= path.stat().st_blocks + 16


@pytest.fixture
def patience() -> Iterator[None]:
    """What waits for ever ends here."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


WORDS = {
    "status": ["status", "ODD"],
    "list": ["list", "ODD"],
    "check": ["check", "ODD"],
    "enable": ["enable", "ODD"],
    "disable": ["disable", "ODD", "--in-place"],
    "undo": ["undo", "ODD"],
    "diff": ["diff", "ODD"],
    "diff-other": ["diff", "FILE", "ODD"],
    "extract": ["extract", "ODD"],
    "probe": ["probe", "ODD", "p:x main"],
    "handler": ["probe", "FILE", "p:x main", "--handler", "ODD:f"],
    "watch": ["watch", "ODD", "x:rw-"],
    "report": ["report", "ODD"],
    "image": ["report", "FILE", "--image", "ODD"],
    "trace": ["trace", "ODD"],
    "boot": ["boot", "ODD"],
    "tracer": ["enable", "FILE", "--tracer", "ODD"],
    "filter": ["enable", "FILE", "-f", "@ODD"],
    "notrace": ["enable", "FILE", "-n", "@ODD"],
    "baseline": ["check", "FILE", "--baseline", "ODD"],
    "write-baseline": ["check", "FILE", "--write-baseline", "ODD"],
}


@pytest.mark.parametrize("odd", ["fifo", "zero"])
@pytest.mark.parametrize("verb", WORDS)
@pytest.mark.usefixtures("patience")
def test_what_is_no_file_is_refused_at_once(verb: str, odd: str, copy_of: Copied) -> None:
    path = copy_of("pad")
    place = path.with_name("odd")
    if odd == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    words = [word.replace("ODD", str(place)).replace("FILE", str(path)) for word in WORDS[verb]]
    result = ftpatch(*words)
    assert result.code in (2, 125), result
    assert result.err.count("\n") == 1 and result.err.startswith("ftpatch: "), result
    assert path.read_bytes() == sample("pad").data
