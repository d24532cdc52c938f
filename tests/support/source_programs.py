# SPDX-License-Identifier: MIT
# ruff: noqa: E501 (programs of other languages)
"""Programs built from Debian's sources, with debug information: what their functions take and
return, as pyelftools reads it."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

from tests.kernels.apt import FetchError, folder, lock
from tests.support.sources import source
from tests.support.tracer_programs import ARCHES, Form, libraries

__all__ = ["SOURCES", "Function", "Source", "built", "functions_of"]


@dataclass(frozen=True)
class Source:
    """A source package: the files that make a program, for the compiler, and what it is given."""

    package: str
    files: tuple[str, ...]
    words: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    text: str = ""
    plus: bool = False


LUA = """local t = {} for i = 1, 9 do t[i] = i * 7919 % 1009 end table.sort(t)
print(t[1], #t, ("pad pun"):gsub("p", "%0y"), pcall(error, "caught"))
local co = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b .. "!" end)
print(co(1), co("two"), string.format("%5.2f|%d", 1 / 3, 42))"""
XML = """#include "pugixml.cpp"
#include <cstdio>
int main() {
    pugi::xml_document doc;
    if (!doc.load_string("<shop a='1'><item n='3' price='9.5'>tea &amp; milk</item><!--x--><item/></shop>")) return 1;
    for (pugi::xml_node one : doc.child("shop").children("item"))
        std::printf("%s %d %s\\n", one.name(), one.attribute("n").as_int(-1), one.child_value());
    pugi::xpath_node found = doc.select_node("//item[@n > 2]/text()");
    std::printf("%s\\n", found.node().value());
    doc.child("shop").append_child("more").append_attribute("b").set_value(7);
    struct : pugi::xml_writer { void write(const void *data, size_t n) override { std::fwrite(data, 1, n, stdout); } } out;
    doc.save(out, " ");
}
"""
SOURCES = {
    "bzip2": Source(
        "bzip2",
        tuple(f"{one}.c" for one in ["bzip2", "blocksort", "huffman", "crctable", "randtable", "compress", "decompress", "bzlib"]),
        words=("-c",),
        text="patch site record veneer journal " * 40,
    ),
    "lua": Source("lua5.4", ("src/l*.c",), words=("-",), flags=("-lm", "-Dluai_makeseed(L)=7"), text=LUA),
    "cjson": Source("cjson", ("cJSON.c", "cJSON_Utils.c", "test.c"), flags=("-lm",)),
    "pugixml": Source("pugixml", ("main.cc",), flags=("-Isrc",), plus=True),
}  # fmt: skip
MULTIARCH = '#define DEB_HOST_MULTIARCH "none"\n'
"""Its folder of modules, which Debian's build tells Lua."""
ZEROED = "-ftrivial-auto-var-init=zero"
"""What a program does not initialize has the same value in each run."""
ADDED = {"pugixml": {"main.cc": XML}, "lua": {"lua5.4-deb-multiarch.h": MULTIARCH}}


def built(name: str, level: str, where: Path, arch: str = "x86_64") -> Path:
    """Build a program in a folder. Skips where its source or compiler is not to be had."""
    one = SOURCES[name]
    home = folder().parent / "sources" / "trees" / one.package
    compiler = ARCHES[arch].gxx if one.plus else ARCHES[arch].gcc
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    with lock("trees"):
        home.parent.mkdir(parents=True, exist_ok=True)
        try:
            tree = home if home.is_dir() else source(one.package, home)
        except FetchError as error:
            pytest.skip(str(error))
    for file, text in ADDED.get(name, {}).items():
        (where / file).write_text(text)
    files = [
        str(path)
        for pattern in one.files
        for path in sorted((*tree.glob(pattern), *where.glob(pattern)))
    ]
    files = [path for path in files if not path.endswith("/luac.c")]
    flags = [f"-I{tree / word[2:]}" if word.startswith("-I") else word for word in one.flags]
    program = where / name
    flags += libraries(Form(arch, "no-pie"), plus=one.plus)
    words = [
        compiler,
        level,
        "-g",
        "-w",
        "-no-pie",
        ZEROED,
        f"-I{where}",
        *files,
        *flags,
        "-o",
        str(program),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
    (where / "input").write_text(one.text)
    return program


@dataclass
class Function:
    """A function, and expressions for what it takes and returns: ``takes`` at its entry, ``gives``
    with $ for what it returns, and with a type where that is in a register."""

    name: str
    takes: list[str] = field(default_factory=list)
    gives: list[str] = field(default_factory=list)


BASE, BOOLEAN, FLOAT, SIGNED, CHARS = "DW_TAG_base_type", 2, 4, (5, 6), (6, 8)
"""DW_ATE_boolean, float, signed and signed_char, and those of char: DWARF 5, section 5.1.1."""
WRAPS = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type")
STRUCTS = ("DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type")
MEMBERS = 5
"""Of one structure."""


def functions_of(program: Path, seed: str) -> list[Function]:
    """The functions of a program that take or return something, of which each name has one, and
    which are whole: what a compiler split or specialised has another name."""
    rng = random.Random(seed)
    found: dict[str, list[Function]] = {}
    with program.open("rb") as file:
        elf = ELFFile(file)
        symbols = Counter(one.name for one in elf.get_section_by_name(".symtab").iter_symbols())
        for unit in elf.get_dwarf_info().iter_CUs():
            for die in _subprograms(unit.get_top_DIE()):
                one = _function(die, rng)
                if symbols[one.name] == 1:
                    found.setdefault(one.name, []).append(one)
    found.pop("main", None)  # gdb's `finish` is not for the outermost frame
    return [few[0] for few in found.values() if len(few) == 1 and (few[0].takes or few[0].gives)]


def _subprograms(die: DIE) -> Iterator[DIE]:
    for child in die.iter_children():
        if child.tag == "DW_TAG_namespace":
            yield from _subprograms(child)
        elif child.tag == "DW_TAG_subprogram" and "DW_AT_low_pc" in child.attributes:
            yield child


def _function(die: DIE, rng: random.Random) -> Function:
    origin = die
    for link in ("DW_AT_abstract_origin", "DW_AT_specification"):
        if link in origin.attributes:
            origin = origin.get_DIE_from_attribute(link)
    linkage = origin.attributes.get("DW_AT_linkage_name") or die.attributes.get(
        "DW_AT_linkage_name"
    )
    out = Function(_text(linkage.value) if linkage else _name(origin))
    for child in die.iter_children():
        if child.tag == "DW_TAG_formal_parameter":
            if "DW_AT_abstract_origin" in child.attributes:
                child = child.get_DIE_from_attribute("DW_AT_abstract_origin")
            if _name(child):
                out.takes += _expressions(_name(child), child, rng)
    out.gives = [one + _suffix(origin) * (one == "$") for one in _expressions("$", origin, rng)]
    out.gives = [one for one in out.gives if one != "$"]
    return out


def _suffix(die: DIE) -> str:
    """A value in a register has no type of the source; one to ask for it as, behind a colon."""
    kind = _type(die)
    if kind is None:
        return ""
    if kind.tag != BASE:
        return ":string" if kind.tag == "DW_TAG_pointer_type" else ""
    encoding, size = (
        kind.attributes["DW_AT_encoding"].value,
        kind.attributes["DW_AT_byte_size"].value,
    )
    if encoding == BOOLEAN:
        return ""
    return f":{'s' if encoding in SIGNED else 'u'}{8 * size}"


def _expressions(name: str, die: DIE, rng: random.Random) -> list[str]:
    """Ways to ask for parts of something that are no structures themselves."""
    kind = _type(die)
    if kind is None or kind.tag in ("DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"):
        return []
    if _is_plain(kind):
        return [name]
    pointed = _type(kind) if kind.tag == "DW_TAG_pointer_type" else None
    out = [] if pointed is None or _is_char(pointed) else [f"{name} == 0"]
    held, joint = (kind, ".") if kind.tag in STRUCTS else (pointed, "->")
    if pointed is not None and _is_char(pointed):
        return [name]
    if held is not None and held.tag in STRUCTS:
        members = [one for one in held.iter_children() if one.tag == "DW_TAG_member"]
        members = [one for one in members if _name(one) and not _is_bits(one)]
        for one in rng.sample(members, min(MEMBERS, len(members))):
            of = _type(one)
            if of is not None and "DW_AT_data_member_location" in one.attributes and _is_plain(of):
                out.append(f"{name}{joint}{_name(one)}")
    return [one for one in out if " == " not in one]


def _is_plain(kind: DIE) -> bool:
    """Numbers, names and texts; addresses vary, and floating point is refused."""
    if kind.tag == BASE:
        return bool(
            kind.attributes["DW_AT_encoding"].value != FLOAT
            and kind.attributes["DW_AT_byte_size"].value <= 8
        )
    if kind.tag == "DW_TAG_enumeration_type":
        return True
    of = _type(kind) if kind.tag in ("DW_TAG_pointer_type", "DW_TAG_array_type") else None
    return of is not None and _is_char(of)


def _is_char(kind: DIE) -> bool:
    return bool(
        kind.tag == BASE
        and kind.attributes["DW_AT_encoding"].value in CHARS
        and _name(kind) == "char"
    )


def _is_bits(die: DIE) -> bool:
    return any(f"DW_AT_{one}" in die.attributes for one in ("bit_size", "data_bit_offset"))


def _type(die: DIE) -> DIE | None:
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag not in WRAPS:
            return die
    return None


def _name(die: DIE) -> str:
    return _text(die.attributes["DW_AT_name"].value) if "DW_AT_name" in die.attributes else ""


def _text(value: bytes) -> str:
    return value.decode()
