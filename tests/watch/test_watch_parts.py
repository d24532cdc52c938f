# SPDX-License-Identifier: MIT
"""Watches on members and elements: where gdb says they are, and as large."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.sampling import scaled

SOURCE = r"""
struct item { char name[12]; int sku; double price; short grid[2][3]; };
struct cart {
        long total;
        int flags : 3;
        int mode;
        union { int whole; unsigned char byte[4]; };
        struct item items[3];
        struct cart *next;
};
volatile struct cart cart = {.total = 4, .mode = 2};
static volatile struct item shelf[4];
volatile struct __attribute__((packed)) { char one; int two; struct { } none; } odd;
volatile int arr[5];
int sell(int n)
{
        static volatile struct { int a; long b; } calls;
        calls.b += n;
        shelf[2].sku = n;
        arr[1] = n;
        odd.two = n;
        return cart.total += n;
}
int main(void) { return sell(3); }
"""
PARTS = (
    "cart.total", "cart.mode", "cart.whole", "cart.byte[2]", "cart.items[1].name[3]",
    "cart.items[1].grid[1][2]", "cart.next", "shelf[2].sku", "shelf[3].price", "arr[1]",
)  # fmt: skip
PLUS = r"""
namespace shop {
struct base { int id; };
struct basket : base { static volatile basket every; long total; struct { short pair[2]; }; };
volatile basket basket::every;
volatile basket baskets[2];
namespace { volatile basket own; }
int sell(int n) { static volatile basket kept; return kept.total += n; }
}
volatile shop::basket &other = shop::baskets[1];
int main() {
        return shop::sell(shop::basket::every.total + shop::baskets[1].id + shop::own.pair[1]
                          + other.id);
}
"""
PLUS_PARTS = {
    "shop::baskets[1].total": "shop::baskets[1].total",
    "shop::baskets[0].id": "shop::baskets[0].id",
    "shop::baskets[0].pair[1]": "shop::baskets[0].pair[1]",
    "shop::basket::every.total": "shop::basket::every.total",
    "_ZN4shop7basketsE[1].id": "shop::baskets[1].id",
    "shop::(anonymous namespace)::own.pair[1]": "'shop::(anonymous namespace)::own'.pair[1]",
    "shop::sell(int)::kept.total": "'shop::sell(int)'::kept.total",
}
MANGLED = "_ZN4shop7basketsE", "shop::baskets"
SLOTS = 4
COMPILERS = [
    (compiler, dwarf, level)
    for compiler in ("gcc", "clang")
    for dwarf in (4, 5)
    for level in ("-O0", "-O2")
]


def _built(folder: Path, compiler: str, *words: str, text: str = SOURCE) -> Path:
    source = folder / ("cart.cpp" if text == PLUS else "cart.c")
    source.write_text(text)
    subprocess.run([compiler, *words, source, "-o", folder / "cart"], check=True)
    return folder / "cart"


def _gdb(program: Path, *names: str) -> list[tuple[str, int]]:
    """Address and size of each."""
    words = []
    for name in names:
        text = f'printf "@ %lu %lu\\n", (unsigned long)&({name}), (unsigned long)sizeof({name})'
        words += ["-ex", text]
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", *words, program], capture_output=True, text=True, check=False
    )
    found = re.findall(r"^@ (\d+) (\d+)$", done.stdout, re.M)
    assert len(found) == len(names), done.stderr
    return [(hex(int(at)), int(size)) for at, size in found]


def _ours(program: Path, *names: str) -> list[tuple[str, int]]:
    out: list[tuple[str, int]] = []
    for some in (names[at : at + SLOTS] for at in range(0, len(names), SLOTS)):
        asked = [f"{name}:rw-" for name in some]
        rows = ftpatch("watch", program, *asked, "--dry-run", "--json").json
        assert [row["symbol"] for row in rows] == [name.replace(*MANGLED) for name in some]
        assert all(row["length"] == row["size"] for row in rows)
        out += [(row["address"], row["size"]) for row in rows]
    return out


@pytest.mark.parametrize(("compiler", "dwarf", "level"), COMPILERS)
def test_where_gdb_has_them(compiler: str, dwarf: int, level: str, tmp_path: Path) -> None:
    program = _built(tmp_path, compiler, level, f"-gdwarf-{dwarf}")
    assert _ours(program, *PARTS) == _gdb(program, *PARTS)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_names_of_cpp(compiler: str, tmp_path: Path) -> None:
    program = _built(tmp_path, compiler, "-g", "-O1", text=PLUS)
    assert _ours(program, *PLUS_PARTS) == _gdb(program, *PLUS_PARTS.values())
    other = ftpatch("watch", program, "other.id:rw-", "--dry-run")
    assert other.code == 2 and "a reference, whose address is known only at run time" in other.err


def test_written_and_read_back(tmp_path: Path) -> None:
    """A table holds the watches as they were written."""
    program, out = _built(tmp_path, "gcc", "-g", "-O1"), tmp_path / "out"
    asked = ["cart.total:rw-", "w@cart.items[1]:8", "cart.items[2]+4:-w-", "calls.0.b:rw-"]
    assert ftpatch("watch", program, *asked, "-o", out).code == 0
    assert sorted(ftpatch("watch", out).out.splitlines()) == sorted(asked)
    rows = {row["watch"]: row for row in ftpatch("watch", out, "--json").json}
    (start, size), (last, _) = _gdb(program, "cart.items[1]", "cart.items[2]")
    assert (rows[asked[1]]["address"], rows[asked[1]]["size"]) == (start, size)
    assert int(str(rows[asked[2]]["address"]), 16) == int(last, 16) + 4
    assert ftpatch("watch", out, "cart.total:---", "--in-place").code == 0
    assert len(ftpatch("watch", out).out.splitlines()) == 3


REFUSED = [
    ("cart.totl", "cart has no member 'totl': '.totl' at column 5 of 'cart.totl'; did you "
     "mean total?"),
    ("crt.total", "crt: no such symbol; did you mean cart?"),
    ("cart.items[1]", "cart.items[1]: it has 40 bytes; watch 1, 2, 4 or 8 of them, as in "
     "rw@cart.items[1]:8"),
    ("odd.two", "odd.two: it has 4 bytes, and stands at 0x"),
    ("odd.none", "odd.none: it has 0 bytes; name an element"),
    ("cart.flags", "cart has 'flags' as a bit-field: '.flags' at column 5 of 'cart.flags'; take "
     "the bytes around it, by their offset"),
    ("cart.next->total", "cart.next is a pointer, and where it points to is known only at run "
     "time: '->total' at column 10 of 'cart.next->total'; watch cart.next itself"),
    ("cart.next[1].total", "cart.next is a pointer, and where it points to is known only at run "
     "time: '[1]' at column 10 of 'cart.next[1].total'; watch cart.next itself"),
    ("arr[5]", "arr has 5 elements: '[5]' at column 4 of 'arr[5]'; they count from 0"),
    ("arr[-1]", "arr has 5 elements: '[-1]' at column 4 of 'arr[-1]'; they count from 0"),
    ("arr[0].x", "arr[0] is no structure: '.x' at column 7 of 'arr[0].x'"),
    ("main.x", "main: a function, not a variable; use `ftpatch probe`"),
]  # fmt: skip


def test_what_is_said_of_errors(tmp_path: Path) -> None:
    program = _built(tmp_path, "gcc", "-g")
    for name, said in REFUSED:
        done = ftpatch("watch", program, f"{name}:rw-", "--dry-run")
        assert done.code == 2 and done.err.startswith(f"ftpatch: {program}: {said}"), done.err
    plain = _built(tmp_path, "gcc", "-O0")
    said = f"ftpatch: {plain}: no debug information; compile it with -g\n"
    assert ftpatch("watch", plain, "cart.total:rw-", "--dry-run").err == said


@pytest.mark.scaled
def test_debug_information_that_lies(tmp_path: Path) -> None:
    """Bytes changed at random: an address, or one line, in a while."""
    program = _built(tmp_path, "gcc", "-O1", "-g")
    whole, broken = program.read_bytes(), tmp_path / "broken"
    table = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True)
    rows = [line.replace("[ ", "[").split() for line in table.stdout.splitlines()]
    spans = [(int(row[4], 16), int(row[5], 16)) for row in rows if ".debug_" in "".join(row[:2])]
    chance = random.Random(int(os.environ.get("FTPATCH_SEED", "1")))
    assert len(spans) > 4
    for _ in range(scaled(60, 12)):
        held = bytearray(whole)
        for _ in range(chance.choice([1, 8, 64, 512])):
            start, size = chance.choice(spans)
            held[start + chance.randrange(size)] = chance.randrange(256)
        broken.write_bytes(held)
        broken.chmod(0o755)
        done = ftpatch("watch", broken, "cart.items[1].sku:rw-", "shelf[2].sku:-w-", "--dry-run")
        assert done.code in (0, 2) and len(done.err.splitlines()) <= 2, done.err
        assert "Traceback" not in done.err
