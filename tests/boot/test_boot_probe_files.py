# SPDX-License-Identifier: MIT
"""Probes in kernels on disk, in files: what is refused, read back, and undone."""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from ftpatch.boot import find_source
from ftpatch.errors import UsageError
from ftpatch.image import open_image
from tests.support.boot_small import BASE, MARKER, STACKS, bootable
from tests.support.command import ftpatch
from tests.support.images import section, symbols_at
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, put

BOTH = ("p:a vfs_read n=$arg1:s32 seven=\\7:u8", "r3:b vfs_read ret=$retval")
DAMAGED = "the record of its probes is damaged"
ANYWHERE = "its symbols do not name its tables; use a vmlinux with symbols"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "vmlinux"
    path.write_bytes(bootable().build())
    return path


def _probed(plain: Path, *words: str) -> Path:
    path = plain.with_name("probed")
    done = ftpatch("probe", plain, *words, "-o", path)
    assert done.code == 0, done.err
    return path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("p vfs_read+4",), 2, ANYWHERE),
        (("p no_site_here",), 2, ANYWHERE),
        (("p nosuch",), 2, "no such function 'nosuch'"),
        (("p vfs_read $comm",), 2, "no $comm in a kernel on disk"),
        (("p vfs_read %flags",), 2, "%flags is not live at a site"),
        (("p vfs_read +0($arg1)",), 2, "no function of this kernel reads memory without faults"),
        (("p vfs_read @nosuch",), 2, "@nosuch: no such symbol"),
        (("p vfs_read +0(\\7)",), 2, "a number is no address"),
        (("p libc:vfs_read",), 2, "libc is not in this image"),
        (("p vfs_read file->f_mode",), 2, "take no names of the source: 'file->f_mode' at column"),
        (("p vfs_read $arg1:x",), 2, "x8, x16, x32, x64, string, symbol\n"),
        (("p vfs_read $arg1:double",), 2, "unknown type is specified: 'double' at column"),
        (("p vfs_read n=",), 2, "$comm, \\NUMBER or +OFFSET(VALUE)\n"),
        (("p vfs_read +0(+0(file))",), 2, "$comm, \\NUMBER or +OFFSET(VALUE)\n"),
        (("p fs/read_write.c:450",), 2, "take no lines of the source: 'fs/read_write.c:450' at"),
        (("r4096 vfs_read",), 1, "use fewer of them, or a lower maxactive"),
        (("p vfs_read", "--handler", "a:b"), 2, "--handler is for programs"),
        (("p vfs_read", "--no-optimize"), 2, "--no-optimize is for programs"),
        (("p vfs_read", "--sink", "semihosting"), 2, "use debugcon or serial"),
        (tuple(f"p:n{n} {name} a=$arg1 b=$arg2 c=$arg3 d=$arg4" for n, name in
               enumerate(["vfs_read", "vfs_write", "do_exit", "schedule"] * 4)), 1, "the largest"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(plain: Path, words: tuple[str, ...], code: int, said: str) -> None:
    before, out = plain.read_bytes(), plain.with_name("out")
    done = ftpatch("probe", plain, *words, "-o", out)
    assert done.code == code and said in done.err, done.err
    assert not out.exists() and plain.read_bytes() == before


def test_a_program_has_no_sink(plain: Path) -> None:
    program = Path("/bin/true")
    done = ftpatch("probe", program, "p main", "--sink", "serial", "-o", plain.with_name("out"))
    assert done.code == 2 and "--sink is for kernels" in done.err


def test_one_bad_probe_writes_nothing(plain: Path) -> None:
    out = plain.with_name("out")
    words = ("p vfs_read", "p nosuch")
    assert ftpatch("probe", plain, *words, "-o", out).code == 2 and not out.exists()
    assert ftpatch("probe", plain, *words, "-o", out, "--keep-going").code == 1
    assert ftpatch("probe", out).out == "p:kprobes/p_vfs_read_0 vfs_read\n"


def test_they_are_listed_checked_and_undone(plain: Path) -> None:
    path = _probed(plain, *BOTH)
    assert ftpatch("probe", path).out.splitlines() == [
        "p:kprobes/a vfs_read n=$arg1:s32 seven=\\7:u8",
        "r3:kprobes/b vfs_read ret=$retval",
    ]
    assert ftpatch("check", path).code == 0
    status = ftpatch("status", path, "--json").only
    assert status["dropped"] == 1
    again = ftpatch("probe", path, "p vfs_write", "-o", path.with_name("again"))
    assert again.code == 1 and "`ftpatch undo` first" in again.err
    assert ftpatch("undo", path).code == 0
    assert path.read_bytes() == plain.read_bytes()
    assert ftpatch("probe", path).code == 2


@pytest.mark.parametrize(
    "words", [("disable",), ("enable", "--to", "do_exit"), ("disable", "--dry-run")]
)
def test_the_site_of_a_probe_is_not_taken(plain: Path, words: tuple[str, ...]) -> None:
    """As in a program; other sites are free."""
    path, out = _probed(plain, *BOTH), plain.with_name("out")
    before = path.read_bytes()
    for name in ("vfs_read", "*"):
        done = ftpatch(words[0], path, *words[1:], "-f", name, "-o", out)
        assert done.code == 1 and not out.exists() and path.read_bytes() == before
        (line,) = done.err.splitlines()
        assert "vfs_read+0x0" in line and line.endswith("run `ftpatch undo` first"), line
    done = ftpatch(words[0], path, *words[1:], "-f", "vfs_write", "-o", out)
    assert done.code == 0, done.err
    if "--dry-run" not in words:
        assert ftpatch("probe", out).out == ftpatch("probe", path).out


def _sent(image: Path) -> bytes:
    """One hit of each probe, as debugcon gets them, with the hit of another stack in between."""
    source = find_source(open_image(image))
    hooked = source.hooked
    assert hooked is not None
    rows = list(
        zip(hooked.place.tolist(), hooked.probe.tolist(), hooked.part.tolist(), strict=True)
    )
    place = {(probe, part): at for at, probe, part in rows}
    hit, entered, low, high = 0, 1, 3, 4
    events = [
        (place[0, hit], BASE - source.at, 0),
        (place[0, hit], BASE - source.at, 1),
        (place[0, low], -3, 1),
        (place[0, low], 5, 0),
        (place[1, entered], BASE - source.at, 0),
        (place[1, hit], BASE - source.at, 0),
        (place[1, low], 0x10, 0),
        (place[1, high], 0x20, 0),
        (place[0, hit], BASE - source.at, 1),  # the machine ended here
    ]
    out = b""
    for at, back, stack in events:
        sp = (STACKS[stack] - 64) & (1 << 48) - 1
        out += bytes([MARKER]) + struct.pack("<ii", at, back) + sp.to_bytes(6, "little")
    return out


def test_a_stream_is_read(plain: Path) -> None:
    path, stream = _probed(plain, *BOTH), plain.with_name("stream")
    stream.write_bytes(_sent(path))
    done = ftpatch("report", stream, "--image", path, "--json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    hits = [(row["probe"], row["tid"], row["values"]) for row in rows if "values" in row]
    assert hits == [
        ("a", 1, {"n": 5, "seven": 7}),
        ("a", 2, {"n": -3, "seven": 7}),
        ("b", 1, {"ret": "0x2000000010"}),
    ]
    (back,) = [row for row in rows if row.get("probe") == "b" and "values" in row]
    assert (back["time"], back["duration"]) == (5, 1)
    assert "1 hit without all values" in done.err
    stripped = plain.with_name("stripped")
    stripped.write_bytes(bootable(sized=False).build())
    bare = stripped.with_name("bare")
    assert ftpatch("probe", stripped, *BOTH, "-o", bare).code == 0
    text = ftpatch("report", stream, "--image", bare).out
    assert " a: (vfs_read+0x0) n=5 seven=7" in text, text
    assert "/* 1 tick */" in text, text
    only = ftpatch("report", stream, "--image", path, "-f", "b")
    assert " b: (" in only.out and " a: (" not in only.out
    assert ftpatch("report", stream, "--image", path, "--tid", "9").code == 2


def test_a_function_that_is_probed_is_at_its_entry(plain: Path) -> None:
    source = find_source(open_image(_probed(plain, "p vfs_read")))
    assert source.hooked is not None
    assert source.hooked.probes[0]["ip"] == symbols_at(BASE)["vfs_read"]


def _findings(path: Path) -> list[tuple[str, str]]:
    """What a check says of a kernel's probes: places and messages."""
    done = ftpatch("check", path, "--json")
    assert done.code == 1 and not done.err, done.err
    rows = [row for row in done.json if row.get("invariant") == "probe-called"]
    return [(row["symbol"], row["message"]) for row in rows]


def _hostile() -> list[Any]:
    probe = {"name": "a", "text": "p f", "symbol": "f", "ip": 1, "site": 1, "returns": False}
    probe["pad"] = 1
    field = ["n", "int_value", 0, 4, None, False]
    good = probe | {"fields": [field]}
    return [
        {},
        [],
        {"probes": [], "places": [[1, 0, 0, 0]]},
        {"probes": [good], "places": [[1, 1, 0, 0]]},
        {"probes": [good], "places": [[1, 0, 1, 3]]},
        {"probes": [good], "places": [[1, 0, 0, 7]]},
        {"probes": [good], "places": [[1, 0]]},
        {"probes": [good], "places": [[1 << 70, 0, 0, 0]]},
        {"probes": [good | {"ip": 1 << 64}], "places": []},
        {"probes": [good | {"name": 7}], "places": []},
        {"probes": [good | {"pad": -1}], "places": []},
        {"probes": [good | {"returns": 7}], "places": []},
        *({"probes": [probe | {"fields": [[*field[:at], bad, *field[at + 1 :]]]}], "places": []}
          for at, bad in ((0, None), (1, "x"), (2, 1 << 40), (3, 9), (4, "x"), (4, 1.5), (5, 2))),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(_hostile())))
def test_a_record_that_lies(plain: Path, number: int) -> None:
    path = _probed(plain, *BOTH)
    told = zlib.compress(json.dumps(_hostile()[number]).encode())
    raw = bytearray(path.read_bytes())
    at = raw.index(b"FTPHOOKS")
    assert len(told) <= int.from_bytes(raw[at + 8 : at + 12], "little"), "it has room"
    raw[at + 8 : at + 12 + len(told)] = len(told).to_bytes(4, "little") + told
    path.write_bytes(raw)
    stream = plain.with_name("stream")
    stream.write_bytes(bytes(64))
    for words in (("probe", path), ("report", stream, "--image", path)):
        done = ftpatch(*words)
        assert done.code == 2 and DAMAGED in done.err, done.err
    assert _findings(path) == [("", DAMAGED)]


@pytest.mark.parametrize(
    ("at", "damage"),
    [
        (12, bytes(100)),
        (12, b"\xff" * 4),
        (12, b"x" * 40),
        (0, b"x"),
        (8, bytes(4)),
        (8, b"\x08\0\0\0"),
        (8, b"\xff" * 4),
    ],
)
def test_a_torn_record(plain: Path, at: int, damage: bytes) -> None:
    path = _probed(plain, *BOTH)
    raw = bytearray(path.read_bytes())
    at += raw.index(b"FTPHOOKS")
    raw[at : at + len(damage)] = damage
    path.write_bytes(raw)
    done = ftpatch("probe", path)
    assert done.code == 2 and DAMAGED in done.err
    assert _findings(path) == [("", DAMAGED)]


def test_a_record_of_another_size(plain: Path) -> None:
    """One byte too many is no part of it, and may be the kernel's."""
    path = _probed(plain, *BOTH)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"FTPHOOKS") + 8
    size = int.from_bytes(raw[at : at + 4], "little")
    for wrong in (size - 1, size + 1):
        raw[at : at + 4] = wrong.to_bytes(4, "little")
        path.write_bytes(raw)
        assert _findings(path) == [("", DAMAGED)]


@pytest.mark.parametrize("to", [None, "do_exit", "another probe"])
def test_a_site_that_calls_no_probe_is_found(plain: Path, to: str | None) -> None:
    path = _probed(plain, "p:a vfs_read", "p:b vfs_write")
    at = symbols_at(BASE)
    place = plain.read_bytes().index(section(bootable(), ".text").data[:64])
    raw = bytearray(path.read_bytes())
    site = place + at["vfs_read"] - BASE
    if to is None:
        raw[site : site + 5] = b"\x0f\x1f\x44\0\0"
    else:
        other = place + at["vfs_write"] - BASE
        (held,) = struct.unpack_from("<i", raw, other + 1)
        distance = held + other - site if to == "another probe" else at[to] - at["vfs_read"] - 5
        struct.pack_into("<Bi", raw, site, 0xE8, distance)
    path.write_bytes(raw)
    assert _findings(path) == [("vfs_read+0x0", "the site does not call the code of the probe a")]


def test_the_readers_are_not_probed_beside_a_read(plain: Path) -> None:
    """Each read would be a hit."""
    image = bootable()
    image.symbols = [
        dataclasses.replace(s, name="copy_from_kernel_nofault") if s.name == "do_exit" else s
        for s in image.symbols
    ]
    plain.write_bytes(image.build())
    out, own, read = plain.with_name("out"), "p copy_from_kernel_nofault", "p vfs_read +0($arg1)"
    assert ftpatch("probe", plain, own, "-o", out).code == 0
    assert ftpatch("probe", plain, read, "-o", out, "--force").code == 0
    text = ftpatch("probe", plain, f"{read}:string", "-o", plain.with_name("none"))
    assert text.code == 2 and "no function of this kernel reads memory" in text.err  # no strings
    for words in ((own, read), (f"{own} +0($arg2)",)):
        done = ftpatch("probe", plain, *words, "-o", plain.with_name("none"))
        assert done.code == 2
        assert "probes read memory with copy_from_kernel_nofault; probe it alone" in done.err


def test_a_probed_function_does_not_stop_the_tracer(plain: Path) -> None:
    words = ("--probe", "p vfs_read", "--until", "vfs_read")
    done = ftpatch("boot", plain, *words)
    assert done.code == 125 and "--until vfs_read: the function has a probe" in done.err


@pytest.mark.parametrize("format_", ["function_graph", "pprof", "function"])
def test_a_format_that_does_not_apply_is_refused_before_the_boot(
    plain: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    def boots(*_: object) -> None:
        raise UsageError(None, "it boots")

    monkeypatch.setattr("ftpatch.cli.boot.boot_kernel", boots)
    out = ("-o", plain.with_name("out")) if format_ == "pprof" else ()
    asked = ("boot", plain, "--format", format_, *out, "--probe")
    done = ftpatch(*asked, "p vfs_read")
    assert done.code == 125 and done.err.count("\n") == 1, done.err
    assert f"{format_} needs them" in done.err or f"reported as {format_}" in done.err
    if format_ != "function":
        done = ftpatch(*asked, "p vfs_write", "--probe", "p vfs_read%return")
        assert done.err == "ftpatch: it boots\n"


@pytest.mark.parametrize("damage", [b"", bytes(8)], ids=["cut", "damaged"])
@pytest.mark.parametrize(
    "words",
    [
        *(("boot",), ("probe",), ("report", "STREAM", "--image")),
        *(("probe", "p vfs_write", "-o", "OUT"), ("enable", "--tracer", "boot", "-o", "OUT")),
    ],
)
def test_a_kernel_whose_journal_is_gone(plain: Path, words: tuple[str, ...], damage: bytes) -> None:
    path, out = _probed(plain, *BOTH), plain.with_name("out")
    path.write_bytes(path.read_bytes()[:-8] + damage)  # its checksum
    stream = plain.with_name("stream")
    stream.write_bytes(bytes(64))
    verb, *others = [{"OUT": str(out), "STREAM": str(stream)}.get(one, one) for one in words]
    at = len(others) if verb == "report" else 0
    done = ftpatch(verb, *others[:at], path, *others[at:])
    reason = "has a boot tracer, but no journal: that is damaged or cut off, or was stripped"
    assert done.code != 0 and not out.exists()
    assert done.err == f"ftpatch: {path}: {reason}; start from the original\n"


def test_a_module_is_told_as_one(tmp_path: Path) -> None:
    path = put(module(FORMS["x86_64"]), tmp_path, "x.ko")
    done = ftpatch("probe", path)
    assert done.code == 2 and "no probes in a module's file" in done.err, done.err
