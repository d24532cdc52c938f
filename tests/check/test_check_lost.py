# SPDX-License-Identifier: MIT
"""Functions that lost their record: what link editors drop, what was nulled by hand, and what only
looks like it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.elf.relocations import Form
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import open_image
from tests.support.broken import found
from tests.support.command import ftpatch
from tests.support.elf_writer import SHF_ALLOC, Image, Section, Segment, Symbol
from tests.support.images import arm64_rela_kernel, pad_program, section, symbols_at
from tests.support.samples import SAMPLES, Sample, sample

TEMPLATE = """
template <class T> __attribute__((noinline)) T twice(T a) { asm volatile(""); return a + a; }
"""
ONE = """
__attribute__((noinline)) int alpha(int x) { return twice(x) + 1; }
int beta(int);
int main(int c, char **) { return alpha(c) + beta(c); }
"""
TWO = """
__attribute__((noinline)) int beta(int x) { return twice(x) + 2; }
int bravo(int x) { return beta(x) * 3; }
"""
COMPILERS = ["g++", "clang++", "aarch64-linux-gnu-g++", "i686-linux-gnu-g++"]
NOPS = {
    "g++": b"\x90" * 5,
    "i686-linux-gnu-g++": b"\x90" * 5,
    "clang++": bytes.fromhex("0f1f440008"),
}
ARM64_PAD = bytes.fromhex("1f2003d51f2003d5")


def _linked(folder: Path, compiler: str, linker: str, *flags: str) -> Path | None:
    """Two files that share an inline function, linked; None where the link editor refuses."""
    for tool in (compiler, f"ld.{linker}" if linker != "mold" else linker):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    parts = []
    for name, text in (("one", ONE), ("two", TWO)):
        parts.append(folder / f"{name}.cc")
        parts[-1].write_text(TEMPLATE + text)
    size = 2 if compiler.startswith("aarch64") else 5
    pad = flags or (f"-fpatchable-function-entry={size}",)
    out = folder / "prog"
    command = [compiler, "-O1", *pad, *map(str, parts), "-o", str(out)]
    if compiler in ("g++", "clang++"):
        command.append(f"-fuse-ld={linker}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "discarded" in done.stderr
    return out if done.returncode == 0 else None


def _pads(path: Path, pad: bytes) -> set[int]:
    """Addresses of the functions that begin with a pad, by an independent reader."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        code = {
            i: (s["sh_addr"], s.data()) for i, s in enumerate(elf.iter_sections()) if s["sh_size"]
        }
        pads = set()
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            where = symbol["st_shndx"]
            if symbol["st_info"]["type"] == "STT_FUNC" and where in code:
                at = symbol["st_value"] - code[where][0]
                if code[where][1][at : at + len(pad)] == pad:
                    pads.add(symbol["st_value"])
    return pads


@pytest.mark.parametrize("compiler", COMPILERS)
def test_what_the_link_editor_drops_is_named(compiler: str, tmp_path: Path) -> None:
    """gcc 11 and 12 lose two with GNU ld, others none: whatever it is, it is what is said."""
    path = _linked(tmp_path, compiler, "bfd")
    assert path is not None
    pads = _pads(path, NOPS.get(compiler, ARM64_PAD))
    assert len(pads) == 5
    arm64 = compiler.startswith("aarch64")
    sites = {int(row["ip"], 16) - 4 * arm64 for row in ftpatch("list", "--json", path).json}
    rows = ftpatch("check", "--json", path).json
    assert {row["invariant"] for row in rows} <= {"record-lost"}
    assert {int(row["ip"], 16) - 4 * arm64 for row in rows} == pads - sites
    status = ftpatch("status", "--json", path).only
    assert (status["lost"], status["sites"]) == (len(rows), len(sites))
    if not rows:
        return
    places = {row["symbol"].partition("+")[0] for row in rows}
    assert places == {"_Z4betai", "_Z5bravoi"}
    assert ftpatch("check", path).code == 1
    told = "2 functions have a pad but no record: beta(int), bravo(int)"
    assert told in ftpatch("status", path).out
    for text in ("b*", "_Z[45]b*"):
        result = ftpatch("list", path, "-f", text)
        assert result.code == 2
        said = "matches no site, but beta(int), bravo(int) have a pad but no record"
        assert f"{said}; see `ftpatch check`\n" in result.err


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_which_tools_give_complete_tables(compiler: str, linker: str, tmp_path: Path) -> None:
    """What the documentation says of gcc 12 and clang."""
    path = _linked(tmp_path, compiler, linker)
    if compiler == "g++":
        version = subprocess.run(
            [compiler, "-dumpversion"], capture_output=True, text=True, check=True
        )
        if version.stdout.split(".")[0].strip() not in ("11", "12"):
            pytest.skip("g++ is neither 11 nor 12")
        assert (path is None) == (linker in ("gold", "lld"))
    if path is None:
        return
    row = ftpatch("status", "--json", path).only
    expected = {"sites": 5, "null": 0, "lost": 0}
    if compiler == "g++":
        expected = {
            "bfd": {"sites": 3, "null": 0, "lost": 2},
            "mold": {"sites": 5, "null": 1, "lost": 0},
        }[linker]
    assert {key: row[key] for key in expected} == expected


def test_without_symbols_the_unwinders_know_functions(tmp_path: Path) -> None:
    path = _linked(tmp_path, "g++", "bfd")
    assert path is not None
    lost = {row["ip"] for row in ftpatch("check", "--json", path).json}
    subprocess.run(["strip", str(path)], check=True)
    assert {row["ip"] for row in ftpatch("check", "--json", path).json} == lost


CALLED_LATER = ("i386-mcount", "i386-mcount-pie", "i386-mcount-pie-got", "riscv64-mcount")
NAMELESS = ("pad-stripped", "pad-glibc-static")
"""Neither symbols nor an unwind table: nothing tells where functions are."""


def _nulled(source: Sample, folder: Path, row: int) -> tuple[Path, int, str]:
    """A copy of a sample whose record of one site is null; its ip and function."""
    path = folder / source.name
    data = bytearray(source.data)
    sites = read_sites(open_image(source.path))
    at = int(sites.row[row])
    word = sites.image.elf.word
    place = int(sites.table.offset[at])
    relocation = int(sites.table.relocation[at])
    relocations = sites.image.relocations
    if relocation >= 0 and relocations.form[relocation] == Form.RELA:
        addend = int(relocations.entry[relocation]) + 2 * word
        data[addend : addend + word] = bytes(word)
    data[place : place + word] = bytes(word)
    path.write_bytes(data)
    name = sites.image.kallsyms.lookup(sites.ip[row : row + 1])[0][0]
    return path, int(sites.ip[row]), name


@pytest.mark.parametrize(
    "source",
    [s for s in SAMPLES if s.expected["sites"] and s.name not in (*CALLED_LATER, *NAMELESS)],
    ids=lambda s: s.name,
)
def test_a_record_that_is_gone_is_found_in_every_form(source: Sample, tmp_path: Path) -> None:
    path, ip, name = _nulled(source, tmp_path, 1)
    rows = ftpatch("check", "--json", path).json
    lost = [row for row in rows if row["invariant"] == "record-lost"]
    assert [int(row["ip"], 16) for row in lost] == [ip]
    assert lost[0]["symbol"].rpartition("+")[0] == (name if lost[0]["symbol"] else "")
    assert ftpatch("status", "--json", path).only["lost"] == 1


@pytest.mark.parametrize("name", ["vmlinux-x86_64", "vmlinux-arm64-callops-room", "fentry"])
def test_what_ftpatch_dropped_is_not_lost(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    verb = "enable" if "arm64" in name else "disable"
    assert ftpatch(verb, sample(name).path, "-o", out).code == 0
    row = ftpatch("status", "--json", out).only
    assert row["lost"] == 0 and (row["dropped"] or name == "fentry")
    assert "record-lost" not in ftpatch("check", out).out


@pytest.mark.parametrize(
    "code",
    [
        b"\x90" * 4 + b"\xc3",
        b"\x90" * 6 + b"\xc3",
        bytes.fromhex("0f1f440008c3"),  # clang's pad, in a program of gcc's
        bytes.fromhex("0f1f440000c3"),
        bytes.fromhex("6690" * 3 + "c3"),
    ],
)
def test_other_nops_are_no_pad(code: bytes, tmp_path: Path) -> None:
    image = _with_function(pad_program(), code)
    assert found(image, tmp_path) == []


def _with_function(image: Image, code: bytes) -> Image:
    """With one function more, which has no record."""
    text = section(image, ".text")
    at = text.address + len(text.data)
    text.data += code
    image.symbols.append(Symbol("more", at, len(code)))
    return image


def test_a_pad_of_the_image_s_own_form_is_one(tmp_path: Path) -> None:
    image = _with_function(pad_program(), b"\x90" * 5 + b"\xc3")
    assert [row[2] for row in found(image, tmp_path)] == ["more+0x0"]


def test_alternatives_are_no_pads(tmp_path: Path) -> None:
    """Debian's arm64 6.1 has four functions of assembly that begin with two NOPs, of which the
    kernel makes something else (caches_clean_inval_pou, ...)."""
    image = _with_function(arm64_rela_kernel(), ARM64_PAD + bytes.fromhex("c0035fd6"))
    more = image.symbols[-1].value
    assert [row[2] for row in found(image, tmp_path)] == ["more+0x4"]
    at = section(image, ".init.data").address + 0x4000
    entry = np.array(
        [more - at, symbols_at(section(image, ".text").address)["do_exit"] - at - 4], "<i4"
    )
    data = entry.tobytes() + bytes.fromhex("01000808")
    image.sections.append(Section(".altinstructions", data, at, flags=SHF_ALLOC))
    image.segments.append(Segment((".altinstructions",), 4))
    assert found(image, tmp_path) == []
    # As in an Image, where nothing names it.
    image.sections[-1].name, image.segments[-1].sections = ".init.other", (".init.other",)
    assert found(image, tmp_path) == []


def test_static_branches_at_a_functions_start_are_no_pad(tmp_path: Path) -> None:
    """Debian's loong64 7.2 has a function that begins with two of them (rt_task_fits_capacity)."""
    image = _with_function(arm64_rela_kernel(), ARM64_PAD + bytes.fromhex("c0035fd6"))
    more = image.symbols[-1].value
    at = section(image, ".init.data").address + 0x4000
    entries = [[more - at, more + 8 - at - 4], [more + 4 - at - 16, more + 8 - at - 20]]
    data = b"".join(np.array(entry, "<i4").tobytes() + bytes(8) for entry in entries)
    image.sections.append(Section("__jump_table", data, at, flags=SHF_ALLOC))
    image.segments.append(Segment(("__jump_table",), 4))
    for name in ("__alt_instructions", "__alt_instructions_end"):  # there are none
        image.symbols.append(Symbol(name, at, type=0, section="__jump_table"))
    assert found(image, tmp_path) == []
    image.sections[-1].name, image.segments[-1].sections = ".init.other", (".init.other",)
    image.symbols[-2:] = [
        Symbol(one.name, at, type=0, section=".init.other") for one in image.symbols[-2:]
    ]
    assert [row[2] for row in found(image, tmp_path)] == ["more+0x4"]
    for name, end in (("__start___jump_table", at), ("__stop___jump_table", at + len(data))):
        image.symbols.append(Symbol(name, end, type=0, section=".init.other"))
    assert found(image, tmp_path) == []
