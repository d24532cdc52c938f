# SPDX-License-Identifier: MIT
"""Debug information that is cut, changed at random, or refers to itself: a value, or a line that
says in the words of ELF and DWARF what is wrong, and where."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.dwarf.enums import ENUM_DW_AT, ENUM_DW_FORM
from elftools.elf.elffile import ELFFile

from tests.support.command import Result, ftpatch
from tests.support.sampling import scaled

SOURCE = r"""
namespace shop {
enum class Color { Red, Green = 5 };
struct Base { int id; };
template <class T> struct Cart : Base {
        T first; Color color; Cart *next; int grid[2][3];
        __attribute__((noinline)) int add(const Base &item, T q)
        { int sum = item.id + (int)q; id += sum; return sum + next->id; }
};
int stock = 3;
}
int main(int n, char **)
{
        shop::Cart<long> cart{}; shop::Base base{};
        cart.next = &cart; base.id = n;
        return cart.add(base, shop::stock);
}
"""
COMMANDS = (
    ("p:a shop::Cart<long>::add this->id i=item.id this->next->color this->grid[1][1] stock q",
     "p:b cart.cc:8 sum", "--dry-run"),
    ("--vars", "shop::Cart<long>::add"),
    ("--lines", "shop::Cart<long>::add"),
)  # fmt: skip
PYTHON = re.compile(
    r"expected \d|NoneType|object|KeyError|FieldError|refaddr|[a-z]Error\b|information: '?\w*'?$"
    r"|internal|\bnot in list|Traceback"
)
"""What a library, or Python, says."""
SECONDS = 60
NUMBERS = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1)
REFERENCES = {"DW_AT_type", "DW_AT_specification", "DW_AT_abstract_origin", "DW_AT_sibling"}


@dataclass(frozen=True)
class Program:
    """A program; where its sections of debug information are in the file; and its references to
    entries: where each is, its attribute, and the offsets of its unit and its entry."""

    path: Path
    sections: dict[str, tuple[int, int]]
    references: list[tuple[int, str, int, int]]
    entries: list[int]

    def changed(self, changes: dict[int, bytes]) -> Path:
        """A copy with other bytes at these places."""
        held = bytearray(self.path.read_bytes())
        for at, raw in changes.items():
            held[at : at + len(raw)] = raw
        copy = self.path.with_name("changed")
        copy.write_bytes(held)
        copy.chmod(0o755)
        return copy

    def cut(self, section: str, size: int) -> dict[int, bytes]:
        """The change that makes a section shorter, in its header."""
        raw = self.path.read_bytes()
        first, count = int.from_bytes(raw[40:48], "little"), int.from_bytes(raw[60:62], "little")
        for header in range(first, first + 64 * count, 64):
            if (
                int.from_bytes(raw[header + 24 : header + 32], "little")
                == self.sections[section][0]
            ):
                return {header + 32: size.to_bytes(8, "little")}
        raise AssertionError(section)


def _built(words: list[str], folder: Path) -> Program:
    (folder / "cart.cc").write_text(SOURCE)
    path = folder / "cart"
    subprocess.run([*words, "cart.cc", "-o", path], check=True, cwd=folder)
    with path.open("rb") as file:
        elf = ELFFile(file)
        parts = {
            one.name: (one["sh_offset"], one["sh_size"])
            for one in elf.iter_sections()
            if one.name.startswith(".debug_")
        }
        references, entries = [], []
        for unit in elf.get_dwarf_info().iter_CUs():
            for die in unit.iter_DIEs():
                entries.append(die.offset)
                references += [
                    (parts[".debug_info"][0] + one.offset, one.name, unit.cu_offset, die.offset)
                    for one in die.attributes.values()
                    if one.form == "DW_FORM_ref4" and one.name in REFERENCES
                ]
    return Program(path, parts, references, entries)


PROGRAMS = {
    "clang-5": ["clang++", "-O0", "-gdwarf-5"],
    "clang-5-O2": ["clang++", "-O2", "-gdwarf-5"],
    "gcc-4": ["g++", "-O0", "-gdwarf-4"],
    "gcc-5-O2": ["g++", "-O2", "-fno-ipa-sra", "-gdwarf-5"],
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Program]:
    return {name: _built(words, tmp_path_factory.mktemp(name)) for name, words in PROGRAMS.items()}


def _asked(path: Path) -> Iterator[Result]:
    """All that is asked of a program; each answer in a while, and in words."""

    def late(*_: object) -> None:
        raise AssertionError(f"{SECONDS} s of processor time are over")

    old = signal.signal(signal.SIGPROF, late)
    try:
        for words in COMMANDS:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            done = ftpatch("probe", path, *words)
            signal.setitimer(signal.ITIMER_PROF, 0)
            assert done.code in (0, 2), (words, done)
            assert bool(done.err) == (done.code == 2), (words, done)
            for line in done.err.splitlines():
                assert line.startswith(f"ftpatch: {path}: "), line
                assert not PYTHON.search(line.partition(" at column")[0]), line
            yield done
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def _mutation(program: Program, chance: random.Random) -> dict[int, bytes]:
    out: dict[int, bytes] = {}
    how = chance.choice(["byte", "byte", "word", "reference", "reference", "header", "cut"])
    for _ in range(chance.choice([1, 1, 2, 8])):
        section = chance.choice(sorted(program.sections))
        start, size = program.sections[section]
        if how == "byte":
            out[start + chance.randrange(size)] = bytes([chance.randrange(256)])
        elif how == "word":
            width = chance.choice([1, 2, 4, 8])
            number = chance.choice([*NUMBERS, size, size - 1]) % (1 << 8 * width)
            out[start + chance.randrange(size)] = number.to_bytes(width, "little")
        elif how == "reference":
            at, _, unit, entry = chance.choice(program.references)
            to = chance.choice([entry, entry + 1, chance.choice(program.entries), 0, 0x7FFFFFFF])
            out[at] = ((to - unit) % (1 << 32)).to_bytes(4, "little")
        elif how == "header":
            out[start + chance.randrange(min(size, 24))] = bytes([chance.randrange(256)])
        else:
            out |= program.cut(section, chance.randrange(size))
    return out


@pytest.mark.scaled
@pytest.mark.parametrize("name", PROGRAMS)
def test_changed_at_random(name: str, programs: dict[str, Program]) -> None:
    seed = int(os.environ.get("FTPATCH_SEED", "1"))
    for number in range(scaled(200, 10)):
        changes = _mutation(programs[name], random.Random(f"{seed} {name} {number}"))
        for _ in _asked(programs[name].changed(changes)):
            pass


@pytest.mark.scaled
@pytest.mark.parametrize("name", PROGRAMS)
def test_cut(name: str, programs: dict[str, Program]) -> None:
    """Each section, to nothing, to its first bytes, and in the middle."""
    program, said = programs[name], set[str]()
    for section, (_, size) in sorted(program.sections.items()):
        for left in (0, 5, size // 2, size - 1) if scaled(1, 0) else (5, size // 2):
            for done in _asked(program.changed(program.cut(section, left))):
                said |= {line for line in done.err.splitlines() if section in line}
    assert any(".debug_info+0x" in line for line in said), said


@pytest.mark.parametrize("name", PROGRAMS)
def test_entries_that_refer_to_themselves(name: str, programs: dict[str, Program]) -> None:
    """All of one attribute at once; and each to the entry that the one before it is of."""
    program = programs[name]
    for attribute in sorted(REFERENCES):
        those = [one for one in program.references if one[1] == attribute]
        changes = {at: (entry - unit).to_bytes(4, "little") for at, _, unit, entry in those}
        answers = list(_asked(program.changed(changes)))
        if attribute == "DW_AT_type":
            assert answers[0].code == 2
        turned = {
            at: (before[3] - unit).to_bytes(4, "little")
            for (at, _, unit, _), before in zip(those, [*those[-1:], *those], strict=False)
        }
        assert len(list(_asked(program.changed(turned)))) == len(COMMANDS)


@pytest.mark.parametrize(("place", "raw"), [(4, b"\x09"), (10, b"\x21"), (11, b"\x01")])
def test_a_damaged_index_is_left_out(place: int, raw: bytes, programs: dict[str, Program]) -> None:
    """Version, address_size and segment_selector_size, which readelf finds invalid as well."""
    program = programs["gcc-4"]
    at = program.sections[".debug_aranges"][0]
    whole = [done.out for done in _asked(program.changed({}))]
    changed = program.changed({at + place: raw})
    assert [done.out for done in _asked(changed)] == whole
    readelf = subprocess.run(
        ["readelf", "--debug-dump=aranges", changed], capture_output=True, text=True, check=False
    )
    assert "aranges" in readelf.stderr


REASONS = [
    (".debug_info", 4, b"\x01", "a version that is not supported"),
    (".debug_info", 4, b"\xee\xee", ".debug_info+0x7: an unknown unit_type 0x0\n"),
    (".debug_info", 10, b"\x21", ".debug_info+0x0: an address_size that is neither 4 nor 8\n"),
    (".debug_info", 11, b"\x7f", ".debug_info+0xb: no abbreviation 127 in its unit's table\n"),
]


@pytest.mark.parametrize(("section", "place", "raw", "said"), REASONS)
def test_what_is_said(
    section: str, place: int, raw: bytes, said: str, programs: dict[str, Program]
) -> None:
    program = programs["gcc-4"]
    changed = program.changed({program.sections[section][0] + place: raw})
    errors = [done.err for done in _asked(changed)]
    assert all(f"cannot read its debug information: {section}" in one for one in errors), errors
    assert all(said in one for one in errors), errors


@pytest.mark.parametrize(
    "name", ["DW_AT_str_offsets_base", "DW_AT_addr_base", "DW_AT_rnglists_base"]
)
def test_a_base_that_is_not_there(name: str, programs: dict[str, Program]) -> None:
    """Its abbreviation gets another attribute's code."""
    program = programs["clang-5"]
    start, size = program.sections[".debug_abbrev"]
    code = bytes([ENUM_DW_AT[name], ENUM_DW_FORM["DW_FORM_sec_offset"]])
    at = program.path.read_bytes().index(code, start, start + size)
    for done in _asked(program.changed({at: b"\x7f"})):
        assert f": .debug_info+0xc: a unit without {name}\n" in done.err
