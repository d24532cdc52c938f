# SPDX-License-Identifier: MIT
"""The stubs that are kept: built from the sources beside them, and what a stub has to be."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import ROOT
from tests.support.cross_root import CROSS, use_cross_root

STUBS = ROOT / "stubs"
BUILT = sorted((STUBS / "built").glob("*/*.elf"))
READERS = sorted((STUBS / "built").glob("*/*.so"))
LOADED = ("PT_LOAD", "PT_GNU_STACK")
ARCHES = sorted({path.parent.name for path in BUILT})
COMPILERS = {
    path.parent.name: re.findall(r"^COMPILER := (\S+)-gcc$", path.read_text(), re.M)[0]
    for path in STUBS.glob("*/arch.mk")
}
FLOATING = (
    *("xmm", "ymm", "%st", "fldt", "fstp", "v0.", "v1.", "\tq0", "\tq1"),
    *("\tfl", "\tfs", "\tfmv", "\tfcvt", "\tc.fl", "\tc.fs", "\tvset"),
    *("\tlfd", "\tlfs", "\tstf", "\tlvx", "\tstvx", "\tlxv", "\tstxv", "\tmtvsr", "\tmfvsr"),
    *("\tvld", "\tvst", "\tvpush", "\tvpop", "\tvm", "\txv", "\tmovgr2f", "\tmovfr2"),
)
"""Words of disassembled code that has other registers than general ones."""
every_stub = pytest.mark.parametrize("path", BUILT, ids=lambda p: f"{p.parent.name}-{p.stem}")


def test_every_architecture_is_built() -> None:
    assert sorted(COMPILERS) == ARCHES


@pytest.mark.parametrize("arch", ARCHES)
def test_built_from_these_sources(arch: str, tmp_path: Path) -> None:
    """By the same compiler: byte for byte."""
    if arch in CROSS:
        use_cross_root(arch)
    if shutil.which(f"{COMPILERS[arch]}-gcc") is None:
        pytest.skip(f"no {COMPILERS[arch]}-gcc")
    words = ["make", "-s", "-C", str(STUBS), f"ARCHES={arch}", f"OUT={tmp_path}"]
    words.append(f"PYTHON={sys.executable}")
    subprocess.run(words, check=True, capture_output=True)
    kept, made = STUBS / "built" / arch, tmp_path / arch
    if (kept / "compiler.txt").read_text() != (made / "compiler.txt").read_text():
        pytest.skip(f"another compiler: {(made / 'compiler.txt').read_text().splitlines()[0]}")
    names = sorted(path.name for path in kept.iterdir())
    assert names == sorted(path.name for path in made.iterdir())
    for name in names:
        assert (kept / name).read_bytes() == (made / name).read_bytes(), name


@every_stub
def test_needs_no_loader(path: Path) -> None:
    """No relocations are left, no segment is both written and executed, and text and data do not
    share a page."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        kinds = {segment["p_type"] for segment in elf.iter_segments()}
        assert kinds <= {"PT_LOAD", "PT_GNU_EH_FRAME", "PT_GNU_STACK", "PT_NULL", "PT_ARM_EXIDX"}
        assert not [s.name for s in elf.iter_sections() if s["sh_type"] in ("SHT_REL", "SHT_RELA")]
        loads = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        assert [s["p_flags"] for s in loads] == [5, 6]
        page = 65536 if path.parent.name in ("arm", "arm64", "ppc64le", "loongarch64") else 4096
        end = loads[0]["p_vaddr"] + loads[0]["p_memsz"]
        assert loads[1]["p_vaddr"] % page == 0 and end <= loads[1]["p_vaddr"]
        symbols = elf.get_section_by_name(".symtab")
        library = path.stem.startswith("library")
        for name in ("ftrace_caller", "ftpatch_library" if library else "ftpatch_config"):
            assert symbols.get_symbol_by_name(name), name


@every_stub
def test_general_registers_only(path: Path) -> None:
    """The disassembler finds no vector or floating-point register."""
    if path.parent.name in CROSS:
        use_cross_root(path.parent.name)
    tool = shutil.which(f"{COMPILERS[path.parent.name]}-objdump") or shutil.which("objdump")
    if tool is None:
        pytest.skip("no objdump")
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".symtab").iter_symbols()
        names = [s.name for s in symbols if s["st_info"]["type"] == "STT_FUNC"]
    # It reads one where a probe asks for it: test_probe_float_registers.py.
    names = [name for name in names if name.partition(".")[0] != "vector"]
    assert ("return_to_handler" in names) != path.stem.startswith("library")
    text = ""
    for name in names:
        words = [tool, f"--disassemble={name}", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{tool} does not know {path.parent.name}")
        text += done.stdout.replace("\tflogr", "")  # find leftmost one
    for word in FLOATING:
        assert word not in text, word


@pytest.mark.parametrize("path", READERS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_this_process_loads_stands_alone(path: Path) -> None:
    """No other library, no relocation, nothing both written and executed."""
    assert path.parent.name in ARCHES
    with path.open("rb") as file:
        elf = ELFFile(file)
        tags = {tag.entry.d_tag for tag in elf.get_section_by_name(".dynamic").iter_tags()}
        assert not tags & {"DT_NEEDED", "DT_RELA", "DT_REL", "DT_JMPREL", "DT_TEXTREL", "DT_INIT"}
        flags = {s["p_flags"] for s in elf.iter_segments() if s["p_type"] in LOADED}
        assert flags <= {4, 5, 6}
        undefined = elf.get_section_by_name(".dynsym").iter_symbols()
        assert not [s.name for s in undefined if s.name and s["st_shndx"] == "SHN_UNDEF"]
