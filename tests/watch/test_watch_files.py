# SPDX-License-Identifier: MIT
"""What `watch` makes of files: all requests or none, what it reads back, and what undo gives."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from ftpatch.image import open_image
from ftpatch.image.injected import laid_in_at
from ftpatch.layout import offset_of
from ftpatch.watch import watch_line
from ftpatch.watch.plan import read_watches
from ftpatch.watch.read_back import injected_watches
from tests.support.command import ftpatch
from tests.support.samples import sample
from tests.support.tracer_programs import Form, build

FOUR = ("counter:rw-", "flag:-w-", "port:rw-", "w@table+16:2")


@cache
def _program(folder: Path) -> bytes:
    place = folder / "build"
    place.mkdir(exist_ok=True)
    return build(Form(site="none"), "watched.c", place).read_bytes()


@pytest.fixture
def plain(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path / "plain"
    path.write_bytes(_program(tmp_path_factory.getbasetemp()))
    path.chmod(0o755)
    return path


@pytest.fixture
def four(plain: Path) -> Path:
    path = plain.with_name("four")
    assert ftpatch("watch", plain, *FOUR, "-o", path).code == 0
    return path


def _lines(path: Path) -> list[str]:
    return [watch_line(watch) for watch in read_watches(open_image(path))]


def test_read_back(four: Path) -> None:
    assert ftpatch("watch", four).out == "".join(f"{text}\n" for text in FOUR)
    rows = ftpatch("watch", four, "--json").json
    assert [row["watch"] for row in rows] == list(FOUR)
    assert (rows[3]["symbol"], rows[3]["offset"], rows[3]["length"]) == ("table", 16, 2)
    assert [row["type"] for row in rows] == ["rw-", "-w-", "rw-", "-w-"]


def test_what_was_told_is_written(plain: Path) -> None:
    result = ftpatch("watch", plain, "counter:rw-")
    assert result.out == f"counter:rw-\nwrote {plain}.ftpatch\n"
    assert ftpatch("watch", plain, "counter:rw-", "--dry-run").out == (
        "counter:rw-\ndry run: nothing was written\n"
    )
    assert ftpatch("watch", plain, "counter:rw-", "--force", "-q").out == ""


def test_a_fifth_is_refused(plain: Path, four: Path) -> None:
    before = four.read_bytes()
    commands: tuple[list[str | Path], ...] = (
        [four, "total:rw-", "--in-place"],
        [plain, *FOUR, "total:rw-", "-o", "x"],
    )
    for words in commands:
        result = ftpatch("watch", *words)
        assert result.code == 2
        assert result.err == (
            f"ftpatch: {words[0]}: total:rw-: Maximum limit:(4) reached, no new requests can be "
            "accepted now; "
            "remove one first, as with SYMBOL:---\n"
        )
    assert four.read_bytes() == before and not Path("x").exists()


def test_taking_out_and_replacing(plain: Path, four: Path) -> None:
    steps: tuple[tuple[list[str], list[str]], ...] = (
        (["flag:---"], ["counter:rw-", "port:rw-", "w@table+16:2"]),
        (["counter:-w-", "total:rw-"], ["counter:-w-", "port:rw-", "w@table+16:2", "total:rw-"]),
        (["*:---"], []),
        (["port:rw-"], ["port:rw-"]),
    )
    held = [four.read_bytes()]
    for requests, expected in steps:
        assert ftpatch("watch", four, *requests, "--in-place").code == 0
        assert _lines(four) == expected
        changed = len(four.read_bytes()) - len(held[-1])
        assert 0 < changed < 2000  # a block of the journal; nothing is laid in again
        held.append(four.read_bytes())
    for before in reversed(held[:-1]):
        assert ftpatch("undo", four).code == 0
        assert four.read_bytes() == before
    assert ftpatch("undo", four).code == 0
    assert four.read_bytes() == plain.read_bytes()


def test_undo_of_all(plain: Path, four: Path) -> None:
    assert ftpatch("watch", four, "*:---", "--in-place").code == 0
    assert ftpatch("undo", four, "--all").code == 0
    assert four.read_bytes() == plain.read_bytes()


def test_the_size_of_the_trace(plain: Path, four: Path) -> None:
    image = open_image(four)
    laid = injected_watches(image)
    assert laid is not None
    size = laid.config + offset_of("stub_config", "size")
    assert int.from_bytes(image.data[size : size + 8].tobytes(), "little") == 64 << 20
    assert ftpatch("watch", four, "flag:---", "--size", "1M", "--in-place").code == 0
    image = open_image(four)
    assert int.from_bytes(image.data[size : size + 8].tobytes(), "little") == 1 << 20
    assert ftpatch("watch", plain, "flag:rw-", "--size", "1K", "-o", "x").code == 2


@pytest.mark.parametrize(
    ("request_", "clause"),
    [
        ("nobody:rw-", "nobody: no such symbol; see `nm -C`"),
        ("conuter:rw-", "no such symbol; did you mean counter?"),
        ("0x99999999:rw-", "0x99999999: not mapped in the program; use a link address"),
        ("look:rw-", "look: a function, not a variable; use `ftpatch probe`"),
        ("own:rw-", "own: thread-local: its address is known only at run time"),
        ("_end:rw-", "_end: an absolute symbol, not an address"),
        ("printf:rw-", "printf: defined in a library, not in this program"),
        ("counter:--x", "execution cannot be watched"),
        ("counter:---", "counter:---: no such watch to clear; watched: flag:rw-"),
        ("counter+4:rw-", "the offset is beyond the symbol"),
    ],
)
def test_what_cannot_be_watched(plain: Path, request_: str, clause: str) -> None:
    result = ftpatch("watch", plain, "flag:rw-", request_, "-o", "x")
    assert result.code == 2 and result.err.count("\n") == 1
    assert clause in result.err
    assert not Path("x").exists()


def test_what_is_constant_is_said(plain: Path) -> None:
    result = ftpatch("watch", plain, "_IO_stdin_used:-w-", "--dry-run")
    assert result.code == 0
    assert (
        "_IO_stdin_used:-w-: the variable is constant, the program cannot write it\n" in result.err
    )
    assert "constant" not in ftpatch("watch", plain, "_IO_stdin_used:rw-", "--dry-run").err


def test_beside_probes(plain: Path, four: Path) -> None:
    both, other = plain.with_name("both"), plain.with_name("other")
    assert ftpatch("probe", four, "p main", "-o", both).code == 0
    assert ftpatch("watch", both).out == "".join(f"{text}\n" for text in FOUR)
    probed = plain.with_name("probed")
    assert ftpatch("probe", plain, "p main", "-o", probed).code == 0
    result = ftpatch("watch", probed)
    assert result.code == 2 and "no watches in this program" in result.err
    assert ftpatch("watch", probed, *FOUR, "-o", other).code == 0
    assert _lines(other) == _lines(both) == list(FOUR)


def test_what_watches_nothing(plain: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    for path in (plain, empty, sample("vmlinux-x86_64").path, tmp_path / "missing"):
        result = ftpatch("watch", path)
        assert result.code == 2 and result.err.count("\n") == 1
    result = ftpatch("watch", plain, "-o", "x")
    assert "nothing to write; specify a watch" in result.err
    result = ftpatch("watch", sample("vmlinux-x86_64").path, "jiffies:rw-", "-o", "x")
    assert result.code == 2 and "not a program (vmlinux)" in result.err


def test_other_architectures(tmp_path: Path) -> None:
    source = tmp_path / "v.c"
    source.write_text("volatile int v; int main(void) { return v; }\n")
    for gcc, arch in (("aarch64-linux-gnu-gcc", "arm64"), ("i686-linux-gnu-gcc", "i386")):
        if shutil.which(gcc) is None:
            continue
        subprocess.run([gcc, str(source), "-o", str(tmp_path / arch)], check=True)
        result = ftpatch("watch", tmp_path / arch, "v:rw-")
        clause = (
            f"ftpatch: {tmp_path / arch}: watches are not supported on {arch}; only on x86_64: "
        )
        assert result.code == 2 and result.err.startswith(clause)


def test_a_part_of_a_variable_is_said(plain: Path) -> None:
    path = plain.with_name("part")
    result = ftpatch("watch", plain, "table:rw-", "w@table+16:2", "w@flag:2", "-o", path)
    assert result.err.splitlines()[1:] == [
        "ftpatch: table:rw-: watching 4 of 64 bytes",
        "ftpatch: w@table+16:2: watching 2 of 64 bytes from byte 16 on",
        "ftpatch: w@flag:2: watching 2 bytes, but the variable has 1",
    ]
    assert ftpatch("watch", path).err.splitlines() == result.err.splitlines()[1:]
    assert [row["size"] for row in ftpatch("watch", path, "--json").json] == [64, 64, 1]
    assert ftpatch("watch", plain, "counter:rw-", "--dry-run").err == ""


def test_nothing_to_clear(plain: Path, four: Path) -> None:
    for text in ("*:---", "counter:---"):
        result = ftpatch("watch", plain, text, "-o", "x")
        clause = f"{plain}: {text}: no such watch to clear; nothing is watched\n"
        assert result.code == 2 and result.err == f"ftpatch: {clause}"
    assert ftpatch("watch", plain, "*:---", "counter:rw-", "--dry-run").code == 0
    assert "more than one `:`" in ftpatch("watch", plain, "a:b:c", "-o", four).err
    assert not Path("x").exists()


def test_programs_of_go_are_refused(plain: Path) -> None:
    path, empty = plain.with_name("go"), plain.with_name("empty")
    empty.write_bytes(b"")
    words = ["objcopy", f"--add-section=.gopclntab={empty}", str(plain), str(path)]
    subprocess.run(words, check=True)
    result = ftpatch("watch", path, "counter:rw-", "-o", "x")
    assert result.code == 2 and "a Go program, whose runtime treats SIGTRAP" in result.err


def test_status_tells_of_watches(plain: Path, four: Path) -> None:
    line = f"{four}: x86_64 executable, watches 4 variables: {', '.join(FOUR)}\n"
    assert (ftpatch("status", four).code, ftpatch("status", four).out) == (0, line)
    assert ftpatch("status", four, "--json").only["watches"] == list(FOUR)
    assert ftpatch("status", plain).code == 2


def test_damaged_tables(four: Path) -> None:
    raw = four.read_bytes()
    laid = injected_watches(open_image(four))
    at = laid_in_at(open_image(four))
    assert laid is not None and at is not None
    path = four.with_name("damaged")
    for place in (*range(laid.table, laid.table + 56), *range(at + 136, at + 152)):
        damaged = bytearray(raw)
        damaged[place] ^= (0xFF, 0x41, 0x02)[place % 3]
        path.write_bytes(damaged)
        result = ftpatch("watch", path)
        assert result.code in (0, 2) and "internal" not in result.err, place
        assert result.code == 0 or result.err.count("\n") == 1
