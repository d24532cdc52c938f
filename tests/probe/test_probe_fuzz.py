# SPDX-License-Identifier: MIT
"""Programs with broken headers and tables: one line and exit code 2, or an output, never more."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.sampling import FUZZ, scaled
from tests.support.tracer_programs import Form, build, run

ROUNDS = scaled(120, 30)
TRACES = scaled(300, 70)
WORTH = (0, 1, 0x7F, 0x80, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
"""What fields get."""
SECTIONS = {
    *(".eh_frame_hdr", ".eh_frame", ".symtab", ".strtab", ".dynsym", ".dynamic"),
    *(".rela.dyn", ".rela.plt", ".text", ".plt", ".plt.sec"),
}


def _regions(raw: bytes) -> list[tuple[int, int]]:
    """(offset, size) of headers and tables of an ELF64 file."""
    segments, sections = struct.unpack_from("<2Q", raw, 32)
    count, _, number, names = struct.unpack_from("<4H", raw, 56)
    found = [(0, 64), (segments, count * 56), (sections, number * 64)]
    (strings,) = struct.unpack_from("<Q", raw, sections + names * 64 + 24)
    for row in range(number):
        name, kind, _, _, offset, size = struct.unpack_from("<2I4Q", raw, sections + row * 64)
        text = raw[strings + name : raw.index(b"\0", strings + name)].decode()
        if text in SECTIONS and kind != 8 and size:
            found.append((offset, size))
    return found


def _broken(raw: bytes, regions: list[tuple[int, int]], rng: random.Random) -> bytes:
    out = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 4])):
        offset, size = rng.choice(regions)
        width = rng.choice([1, 2, 4, 8])
        at = offset + rng.randrange(size) // width * width
        if rng.random() < 0.2:
            out[at : at + 24] = bytes([rng.choice([0, 0x80, 0xFF])]) * 24
        else:
            out[at : at + width] = (rng.choice(WORTH) & (1 << 8 * width) - 1).to_bytes(
                width, "little"
            )
    return bytes(out[: rng.randrange(len(out))] if rng.random() < 0.05 else out)


@pytest.mark.scaled
@pytest.mark.parametrize("arch", ["x86_64", "arm64"])
def test_broken_programs(arch: str, tmp_path: Path) -> None:
    program = build(Form(arch, site="none"), "traps.c", tmp_path)
    raw, rng = program.read_bytes(), random.Random(FUZZ)
    regions, broken, out = _regions(raw), tmp_path / "broken", tmp_path / "out"
    for number in range(ROUNDS):
        broken.write_bytes(_broken(raw, regions, rng))
        out.unlink(missing_ok=True)
        if arch == "x86_64" and number % 3 == 0:
            done = ftpatch("watch", broken, "stdout:rw-", "-o", out)
        else:
            way = rng.choice(["--optimize", "--no-optimize"])
            done = ftpatch("probe", broken, "p work $arg1", "r:w work $retval", way, "-o", out)
        assert done.code == (0 if out.exists() else 2), f"{number}: {done}"
        lines = done.err.splitlines()
        assert "internal error" not in done.err, f"{number}: {done}"
        assert all(line.startswith("ftpatch: ") for line in lines), done
        # One line for each of the two definitions, and what both have in common once.
        assert done.code == 0 or 0 < len(lines) == len(set(lines)) <= 2, done


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (0x6474_E552, 40, (1 << 64) - 1),
        (0x6474_E550, 40, 1 << 63),
        (0x6474_E550, 16, (1 << 64) - 4096),
        (1, 16, (1 << 63) - 4096),
    ],
    ids=["relro-wraps", "frames-without-end", "frames-at-the-end", "far-away"],
)
def test_segments_that_wrap(kind: int, field: int, value: int, tmp_path: Path) -> None:
    """Of the last segment of a kind one field is ``value``."""
    program = build(Form(site="none"), "traps.c", tmp_path)
    raw = bytearray(program.read_bytes())
    (segments,) = struct.unpack_from("<Q", raw, 32)
    (count,) = struct.unpack_from("<H", raw, 56)
    rows = [segments + row * 56 for row in range(count)]
    (*_, last) = [at for at in rows if struct.unpack_from("<I", raw, at) == (kind,)]
    struct.pack_into("<Q", raw, last + field, value)
    program.write_bytes(raw)
    done = ftpatch("probe", program, "p work", "--no-optimize", "-o", tmp_path / "out")
    assert done.code in (0, 2) and "internal" not in done.err, done.err


def test_a_dynamic_table_that_is_mapped_elsewhere(tmp_path: Path) -> None:
    """Through it the runtime finds the libraries, as PT_DYNAMIC says where it is."""
    program = build(Form(site="none"), "traps.c", tmp_path)
    raw = bytearray(program.read_bytes())
    (segments,) = struct.unpack_from("<Q", raw, 32)
    (count,) = struct.unpack_from("<H", raw, 56)
    rows = [segments + row * 56 for row in range(count)]
    (row,) = [at for at in rows if struct.unpack_from("<I", raw, at) == (2,)]
    for address in ((1 << 64) - 1, 0, 1 << 40):
        struct.pack_into("<Q", raw, row + 16, address)
        program.write_bytes(raw)
        done = ftpatch("probe", program, "p work", "-o", tmp_path / "out")
        assert done.code == 2 and "the dynamic table is not mapped" in done.err, done.err


FORMATS = (
    "probes",
    "profile",
    "histogram",
    "function_graph",
    "folded",
    "flamegraph",
    "html",
    "chrome",
    "json",
)


def _flipped(raw: bytes, regions: list[tuple[int, int]], rng: random.Random) -> bytes:
    """With bits and bytes of some regions (offset, size) changed, or cut."""
    out = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 8, 40])):
        offset, size = rng.choice(regions)
        at = offset + rng.randrange(size)
        out[at] = rng.choice([0, 0xFF, rng.randrange(256), out[at] ^ 1 << rng.randrange(8)])
    return bytes(out[: rng.randrange(len(out))] if rng.random() < 0.1 else out)


@pytest.mark.scaled
def test_broken_traces(tmp_path: Path) -> None:
    """Of a real trace with bytes changed: a report that its readers take, or one line."""
    program, out, trace = build(Form(site="none"), "traps.c", tmp_path), tmp_path / "out", None
    words: tuple[str, ...] = (
        "p work a=$arg1:s32 s=+0($arg1):string t=+0(\\4096):u8 at=$stack0:symbol c=$comm",
    )
    words += ("p:led work a=$arg1 stack", "p:few work stack(3):fp", "r:back work stack")
    done = ftpatch("probe", program, *words, "r:left work $retval:s64", "r:too work", "-o", out)
    assert done.code == 0, done.err
    trace = tmp_path / "trace"
    run(out, cwd=tmp_path, arch="x86_64", env={"FTPATCH_TRACE": str(trace)})
    whole, rng, broken = trace.read_bytes(), random.Random(FUZZ), tmp_path / "broken"
    (header,) = struct.unpack_from("<I", whole, 12)
    regions = [(0, 256), (4096, header - 4096), (header, 64), (header, 2048), (header, 2048)]
    whole = whole[: header + 65536]
    good = 0
    for number in range(TRACES):
        broken.write_bytes(_flipped(whole, regions, rng))
        form = FORMATS[number % len(FORMATS)]
        done = ftpatch("report", broken, "--format", form, "--force")
        said = [line for line in done.err.splitlines() if line.startswith("ftpatch: ")]
        assert done.code in (0, 2) and "internal error" not in done.err, f"{number}: {done.err}"
        assert len(said) == len(done.err.splitlines()), f"{number}: {done.err}"
        assert done.code == 0 or said, f"{number}: one line at least"
        good += done.code == 0
        if done.code == 0 and form == "chrome":
            json.loads(done.out)
        elif done.code == 0 and form == "json":
            # By the header's kind of tracer, which is among what was changed, they are calls.
            assert all("probe" in row or "event" in row or "lost" in row for row in done.json)
        elif done.code == 0 and form in ("probes", "profile", "histogram", "function_graph"):
            assert done.out.replace("\n", "").isprintable(), f"{number}: {done.out}"
    assert good > TRACES / 3, "what is read is what is tried"
