# SPDX-License-Identifier: MIT
"""Tables by which units are found: .debug_aranges, .debug_names and .gdb_index, of compilers, link
editors and gdb. With them, without them, and with damaged ones the answers are the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.debuginfo.debug_info import DebugInfo
from tests.support.command import ftpatch
from tests.support.sampling import scaled

HEADER = r"""
#pragma once
struct Item { int id; long price; };
inline __attribute__((noinline)) long priced(const Item &item, int n) { return item.price * n; }
template <class T> struct Cart {
        T first; int count;
        __attribute__((noinline)) int add(const T &one, int n) { first = one; return count += n; }
};
"""
UNIT = r"""
#include "cart.h"
namespace shop%(n)d {
static __attribute__((noinline)) int local(int a) { return a * %(n)d + 1; }
__attribute__((noinline)) int sell(Item *item, int qty)
{
        Cart<Item> cart{};
        return cart.add(*item, qty) + local(qty) + (int)priced(*item, qty);
}
struct Shelf {
        struct Row { __attribute__((noinline)) static int at(int n) { return n ^ %(n)d; } };
};
}
int call%(n)d(int n)
{
        Item item{n, 2};
        return shop%(n)d::sell(&item, n) + shop%(n)d::Shelf::Row::at(n);
}
"""
MAIN = r"""
int call0(int), call1(int), call2(int);
int main(int n, char **) { return call0(n) + call1(n) + call2(n); }
"""
RUST = r"""
pub struct Item { pub id: u32, pub price: u64 }
#[inline(never)] pub fn sell(item: &Item, qty: u64) -> u64 { item.price * qty + item.id as u64 }
fn main() { println!("{}", sell(&Item { id: 1, price: 2 }, std::env::args().count() as u64)); }
"""
INDEXES = (".debug_aranges", ".debug_names", ".gdb_index")
SECTIONS = ["-ffunction-sections", "-Wl,--gc-sections"]
PROGRAMS = {
    "gcc": (["g++", "-gdwarf-5"], [".debug_aranges"]),
    "gcc-4-O2": (["g++", "-gdwarf-4", "-O2"], [".debug_aranges"]),
    "gcc-lto": (["g++", "-g", "-O2", "-flto"], [".debug_aranges"]),
    "clang": (["clang++", "-gdwarf-5"], []),
    "clang-names": (["clang++", "-gdwarf-5", "-gpubnames"], [".debug_names"]),
    "clang-names-O2": (["clang++", "-gdwarf-5", "-gpubnames", "-O2", *SECTIONS], [".debug_names"]),
    "clang-aranges": (["clang++", "-gdwarf-5", "-gdwarf-aranges"], [".debug_aranges"]),
    "lld": (["clang++", "-gdwarf-5", "-ggnu-pubnames", "-fuse-ld=lld", "-Wl,--gdb-index"],
            [".gdb_index"]),
    "lld-icf": (["clang++", "-gdwarf-4", "-ggnu-pubnames", *SECTIONS, "-fuse-ld=lld",
                 "-Wl,--gdb-index,--icf=all"], [".gdb_index"]),
    "gold": (["clang++", "-gdwarf-4", "-ggnu-pubnames", "-fuse-ld=gold", "-Wl,--gdb-index"],
             [".gdb_index"]),
    "gdb": (["clang++", "-gdwarf-4", "gdb-add-index"], [".gdb_index"]),
    "gdb-5": (["clang++", "-gdwarf-5", "gdb-add-index"], [".gdb_index"]),
    "gdb-names": (["clang++", "-gdwarf-5", "gdb-add-index -dwarf-5"], [".debug_names"]),
    "rust": (["rustc", "-g"], [".debug_aranges"]),
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A program, one without its indexes, and the link addresses of its functions."""

    path: Path
    bare: Path
    functions: dict[int, str]


def _built(name: str, folder: Path) -> Program:
    words = [one for one in PROGRAMS[name][0] if not one.startswith("gdb-")]
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]}")
    path = folder / "prog"
    if words[0] == "rustc":
        (folder / "shop.rs").write_text(RUST)
        subprocess.run([*words, "shop.rs", "-o", path], check=True, cwd=folder)
    else:
        (folder / "cart.h").write_text(HEADER)
        (folder / "main.cc").write_text(MAIN)
        for n in range(3):
            (folder / f"unit{n}.cc").write_text(UNIT % {"n": n})
        files = sorted(one.name for one in folder.glob("*.cc"))
        linked = [one for one in words if one.startswith(("-f", "-Wl", "-O", "clang", "g+"))]
        plain = [one for one in words if not one.startswith(("-Wl", "-fuse"))]
        for one in files:
            subprocess.run([*plain, "-c", one], check=True, cwd=folder)
        objects = [one.replace(".cc", ".o") for one in files]
        subprocess.run([*linked, *objects, "-o", path], check=True, cwd=folder)
    for one in PROGRAMS[name][0]:
        if one.startswith("gdb-"):
            subprocess.run([*one.split(), path], check=True, cwd=folder)
    bare = folder / "bare"
    away = [word for one in INDEXES for word in ("-R", one)]
    subprocess.run(["objcopy", *away, path, bare], check=True)
    with path.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        functions = {
            one["st_value"]: one.name
            for one in table.iter_symbols()
            if one["st_info"]["type"] == "STT_FUNC" and one["st_value"] and one["st_size"]
        }
        for one in PROGRAMS[name][1]:
            assert elf.get_section_by_name(one) is not None, one
    return Program(path, bare, functions)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Program]:
    """Those that were asked for already."""
    return {}


@pytest.fixture
def program(
    request: pytest.FixtureRequest,
    programs: dict[str, Program],
    tmp_path_factory: pytest.TempPathFactory,
) -> Program:
    name = request.param
    if name not in programs:
        programs[name] = _built(name, tmp_path_factory.mktemp(name))
    return programs[name]


def _opened(path: Path, functions: dict[int, str]) -> DebugInfo:
    info = DebugInfo(path)
    info.named = lambda at: [functions[at]] if at in functions else []
    return info


def _stated(path: Path) -> Iterator[tuple[int, int, int]]:
    """The ranges of units, as pyelftools reads them."""
    with path.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            held = unit.get_top_DIE().attributes
            low = held["DW_AT_low_pc"].value if "DW_AT_low_pc" in held else 0
            if "DW_AT_ranges" in held:
                for one in dwarf.range_lists().get_range_list_at_offset(
                    held["DW_AT_ranges"].value, unit
                ):
                    if hasattr(one, "base_address"):
                        low = one.base_address
                        continue
                    base = 0 if one.is_absolute else low
                    yield one.begin_offset + base, one.end_offset + base, unit.cu_offset
            elif "DW_AT_high_pc" in held:
                yield low, low + held["DW_AT_high_pc"].value, unit.cu_offset


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_units_are_what_they_state(program: Program) -> None:
    """Of each function of the program, with the index and without."""
    info, bare = _opened(program.path, program.functions), _opened(program.bare, {})
    ranges = list(_stated(program.path))
    told = 0
    for address in program.functions:
        units = [unit for begin, end, unit in ranges if begin <= address < end]
        found = info.unit_at(address)
        assert found == bare.unit_at(address), program.functions[address]
        assert found in units if units else found is None, program.functions[address]
        told += found is not None
    assert told > 10
    assert info.unit_at((1 << 64) - 1) is None


@pytest.mark.parametrize("program", [n for n in PROGRAMS if PROGRAMS[n][1]], indirect=True)
def test_an_index_is_used(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The units that it names are read, not all of them."""
    monkeypatch.setattr(DebugInfo, "_whole", property(lambda _: pytest.fail("all units are read")))
    address = next(at for at, one in program.functions.items() if "sell" in one)
    assert _opened(program.path, program.functions).unit_at(address) is not None


def _said(path: Path, name: str, symbol: str) -> list[str]:
    """What the command says of a function."""
    out = []
    for words in (("--vars", symbol), ("--lines", symbol), (f"p:a {symbol}", "--dry-run")):
        done = ftpatch("probe", path, *words)
        assert done.code in (0, 2), done
        out.append(f"{done.code} {done.out} {done.err}".replace(str(path), name))
    return out


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_answers_are_the_same(program: Program) -> None:
    """What can be named, and the lines, in functions of the source, whatever unit they are in."""
    symbols = [one for one in program.functions.values() if re.search("sell|priced|local|add", one)]
    symbols = [one for one in symbols if re.search("shop|prog|Cart|Item", one)]
    symbols = sorted(symbols, key=lambda one: "sell" not in one)[: scaled(12, 3)]
    answers = [_said(program.path, "x", one) for one in symbols]
    assert answers == [_said(program.bare, "x", one) for one in symbols]
    assert any(one[0].startswith("0") and "qty" in one[0] for one in answers), answers


@pytest.mark.parametrize("program", ["gcc", "clang-names", "lld", "gdb-names"], indirect=True)
def test_gdb_finds_the_same_parameters(program: Program) -> None:
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    symbol = next(one for one in program.functions.values() if "shop1" in one and "sell" in one)
    told = ftpatch("probe", program.path, "--vars", symbol)
    scope = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", f"info scope {symbol}", program.path],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = set(re.findall(r"^Symbol (\w+) is", scope.stdout, re.MULTILINE))
    assert {"item", "qty"} <= theirs, scope.stdout
    assert {"item", "qty"} <= set(re.findall(r"\w+", told.out)), told
    lines = ftpatch("probe", program.path, "--lines", symbol)
    line = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", f"info line {symbol}", program.path],
        capture_output=True,
        text=True,
        check=True,
    )
    (first,) = re.findall(r"^Line (\d+) of", line.stdout)
    assert re.search(rf"^\s*{first}\b", lines.out, re.MULTILINE), (line.stdout, lines.out)


FUZZED = [
    ("gcc", ".debug_aranges"),
    ("clang-names", ".debug_names"),
    ("gdb-names", ".debug_names"),
    ("lld", ".gdb_index"),
    ("gdb", ".gdb_index"),
]


@pytest.mark.parametrize(
    ("program", "section"), FUZZED, indirect=["program"], ids=["/".join(one) for one in FUZZED]
)
def test_each_byte_of_an_index_may_be_wrong(
    program: Program, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is cut anywhere, or empty: units have what they are found for, and there is never
    an error. Of an inline function's units, a damaged index may leave out the first."""
    bare = _opened(program.bare, {})
    mine = {at: bare.unit_at(at) for at, name in program.functions.items()}
    mine = {at: unit for at, unit in mine.items() if unit is not None}
    assert mine
    stated = list(_stated(program.bare))
    units = {at: {unit for a, b, unit in stated if a <= at < b} for at in mine}
    probed = list(mine)[:: scaled(1, 4)]
    raw = _opened(program.path, {})._section(section)
    step = max(1, len(raw) // scaled(200, 20))
    damaged = [b"", raw * 2, raw[::-1], b"\xff" * len(raw), bytes(len(raw))]
    for at in range(0, len(raw), step):
        damaged.append(raw[:at])
        for value in (0, 0xFF, raw[at] ^ 1, raw[at] ^ 0x80):
            damaged.append(raw[:at] + bytes([value]) + raw[at + 1 :])
    whole = bare._whole
    for one in damaged:
        with monkeypatch.context() as patch:
            patch.setattr(
                DebugInfo, "_section", lambda _, name, one=one: one if name == section else b""
            )
            patch.setattr(DebugInfo, "_whole", whole)
            info = _opened(program.bare, program.functions)
            for at in probed:
                assert info.unit_at(at) in units[at], hex(at)
            assert info.unit_at((1 << 64) - 1) is None
            info._file.close()


@pytest.mark.parametrize("section", [".debug_aranges", ".debug_names", ".gdb_index"])
@pytest.mark.parametrize("program", ["gcc", "clang-names", "lld"], indirect=True)
def test_the_index_of_another_program(program: Program, section: str, tmp_path: Path) -> None:
    """Units that are not there, or not where it says: the command answers as without it."""
    stale = tmp_path / "index"
    stale.write_bytes(bytes(range(256)) * 16)
    other = tmp_path / "prog"
    words = ["--add-section", f"{section}={stale}", str(program.bare), str(other)]
    subprocess.run(["objcopy", *words], check=True, capture_output=True)
    symbol = next(one for one in program.functions.values() if "sell" in one)
    assert _said(other, "x", symbol) == _said(program.bare, "x", symbol)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("version", [4, 5])
def test_split_debug_information_is_told(compiler: str, version: int, tmp_path: Path) -> None:
    """Its entries are in a file that is not read; lines are not."""
    (tmp_path / "a.c").write_text("int sell(int n)\n{\n return n;\n}\nint main(void) {}\n")
    words = [compiler, f"-gdwarf-{version}", "-gsplit-dwarf", "a.c", "-o", "a"]
    subprocess.run(words, check=True, cwd=tmp_path)
    for asked in ("p sell n", "p a.c:3 n"):
        done = ftpatch("probe", tmp_path / "a", asked, "--dry-run")
        (line,) = done.err.splitlines()
        assert done.code == 2, done
        assert re.search(r" is in (a-)?a\.dwo; compile it without -gsplit-dwarf$", line), line
    assert ftpatch("probe", tmp_path / "a", "p sell n=$arg1:s32", "--dry-run").code == 0
