# SPDX-License-Identifier: MIT
"""Patched modules as a link editor understands them: it resolves the calls, and lays the table.

Modules are compiled here and linked by ``ld -r``, as kernels build them; after ftpatch, ``ld``
gives them addresses, and Capstone reads where the calls go.
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import ftpatch
from tests.support.compiled import TARGETS
from tests.support.loose_reader import read_loose
from tests.support.readers import disassembled, target_of

SOURCE = """
#ifndef OBJECT
__attribute__((section(".modinfo"), used, aligned(1))) static const char info[] = "name=demo";
__attribute__((section(".gnu.linkonce.this_module"), used)) char __this_module[64];
#endif
int printk(const char *, ...);
int one(int a) { return a * 3; }
static __attribute__((noinline, used)) int two(int a) { return printk("x%d", a); }
int three(int a) { return two(a) + one(a + 1); }
__attribute__((cold)) int four(int a) { return a + 5; }
__attribute__((section(".init.text"))) int init_module(void) { return printk("i") + three(1); }
__attribute__((section(".init.text"))) int quiet(void) { return 5; }
"""
NAMES = ["one", "two", "three", "four", "init_module", "quiet"]
PAD = "-fpatchable-function-entry="
RISCV = ["-march=rv64gc", "-mabi=lp64d", "-mno-relax"]
FENTRY = ["-pg", "-mfentry", "-mrecord-mcount"]
AT = {"my_tracer": 0x50_0000, "printk": 0x51_0000, "__fentry__": 0x52_0000}
"""Addresses that the link editor is told."""


@dataclass(frozen=True)
class Build:
    """A way to compile modules, and the linker's own options. An ``-DOBJECT`` is no module."""

    arch: str
    flags: list[str]
    compiler: str = "gcc"
    ld: tuple[str, ...] = ()

    @property
    def is_module(self) -> bool:
        """Whether a kernel's ftrace would read its table."""
        return "-DOBJECT" not in self.flags


BUILDS = {
    "x86_64": Build("x86_64", [*FENTRY, "-mcmodel=kernel", "-fcf-protection=none"]),
    "x86_64-ibt": Build("x86_64", [*FENTRY, "-mcmodel=kernel", "-fcf-protection=branch"]),
    "i386": Build("i386", [*FENTRY, "-fcf-protection=none"]),
    "arm64": Build("arm64", [f"{PAD}2"]),
    "arm64-bti": Build("arm64", [f"{PAD}2", "-mbranch-protection=pac-ret+bti"]),
    "arm64-ops": Build("arm64", [f"{PAD}4,2", "-falign-functions=8"]),
    "arm64-sections": Build("arm64", [f"{PAD}2", "-g", "-ffunction-sections"]),
    "arm64-clang": Build("arm64", [f"{PAD}2"], "clang"),
    "x86_64-pad": Build("x86_64", [f"{PAD}5", "-fcf-protection=none", "-DOBJECT"]),
    "x86_64-clang": Build("x86_64", [f"{PAD}5", "-DOBJECT"], "clang"),
    "i386-pad": Build("i386", [f"{PAD}5", "-fcf-protection=none", "-DOBJECT"]),
    "riscv64": Build("riscv64", [*RISCV, f"{PAD}4"], ld=("--no-relax",)),
    "riscv64-relax": Build("riscv64", [*RISCV, f"{PAD}4"]),
    "riscv64-ops": Build(
        "riscv64", [*RISCV, f"{PAD}8,4", "-falign-functions=8"], ld=("--no-relax",)
    ),
    # As arch/s390/Makefile has it.
    "s390x": Build("s390x", [*FENTRY, "-mnop-mcount"]),
    "s390x-pad": Build("s390x", [f"{PAD}3", "-DOBJECT"]),
}
every_build = pytest.mark.parametrize("name", BUILDS)


def _ld(build: Build, *arguments: str | Path) -> None:
    gcc = TARGETS[build.arch].gcc
    tool = shutil.which(gcc.removesuffix("gcc") + "ld")
    if tool is None:
        pytest.skip(f"no linker for {build.arch}")
    mode = ["-m", "elf_i386"] if build.arch == "i386" else []
    done = subprocess.run(
        [tool, *mode, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def _module(build: Build, folder: Path) -> Path:
    source = folder / "demo.c"
    source.write_text(SOURCE)
    flags = ["-fno-pic", "-fno-asynchronous-unwind-tables", "-fno-common", *build.flags]
    if build.compiler == "clang":
        flags.append("-Wno-unused-command-line-argument")
    part = TARGETS[build.arch].compile(build.compiler, flags, source)
    path = folder / "demo.ko"
    _ld(build, "-r", "-o", path, part)
    return path


@dataclass(frozen=True)
class Linked:
    """A linked image: where functions are, and where their sites' calls go (0: nowhere)."""

    at: dict[str, int]
    calls: dict[str, int]
    table: list[int]


def _linked(build: Build, path: Path) -> Linked:
    """Link it at addresses, and read it."""
    target = path.with_name("linked")
    symbols = [f"--defsym={name}={value:#x}" for name, value in AT.items()]
    _ld(build, *build.ld, "-e", "0", "-Ttext=0x400000", *symbols, "-o", target, path)
    elf = ELFFile(io.BytesIO(target.read_bytes()))
    at = {s.name: s["st_value"] for s in elf.get_section_by_name(".symtab").iter_symbols()}
    calls = {}
    for name in NAMES:
        address, code = at[name], b""
        for section in elf.iter_sections():
            start = section["sh_addr"]
            if section["sh_type"] == "SHT_PROGBITS" and start <= address < start + len(
                section.data()
            ):
                code = section.data()[address - start :][:24]
        calls[name] = _called(build, code, address)
    word = elf.elfclass // 8
    held = b"".join(
        s.data()
        for s in elf.iter_sections()
        if s.name in ("__mcount_loc", "__patchable_function_entries")
    )
    order: Literal["little", "big"] = "little" if elf.little_endian else "big"
    table = [int.from_bytes(held[i : i + word], order) for i in range(0, len(held), word)]
    return Linked({name: at[name] for name in NAMES}, calls, table)


def _called(build: Build, code: bytes, address: int) -> int:
    """Where the call goes that a function begins with; 0 for NOPs."""
    arch = build.arch
    insns = [i for i in disassembled(arch, code, address) if i.mnemonic not in ("endbr64", "bti")]
    if insns[0].mnemonic == "hint":  # bti, to an older Capstone
        insns.pop(0)
    first, second = insns[:2]
    if arch == "s390x":
        if first.mnemonic == "brasl":
            # In an object of a program %r0 has the static chain of nested functions.
            assert first.op_str.startswith("%r1, " if "-DOBJECT" in build.flags else "%r0, ")
            return int(first.operands[1].imm)
        assert (first.mnemonic, first.operands[0].imm) in (("brcl", 0), ("bcr", 0)), first
        return 0
    if arch in ("x86_64", "i386"):
        return target_of(first) if first.mnemonic == "call" else 0
    if arch == "arm64":
        if second.mnemonic != "bl":
            assert (first.mnemonic, second.mnemonic) == ("nop", "nop")
            return 0
        assert (first.mnemonic, first.op_str) == ("mov", "x9, x30")
        return target_of(second)
    if first.mnemonic != "auipc":
        assert first.mnemonic in ("c.nop", "nop"), first
        return 0
    assert first.op_str.startswith("t0,") and second.mnemonic == "jalr", (first, second)
    high = int(first.op_str.split(",")[1], 0)
    low = second.bytes[3] << 4 | second.bytes[2] >> 4
    low -= 4096 if low & 0x800 else 0
    assert int.from_bytes(second.bytes, "little") & 0xFFFFF == 0x282E7  # jalr t0, low(t0)
    return int(address + (high << 12) + low) & 0xFFFF_FFFF


@every_build
@pytest.mark.parametrize("seed", range(4))
def test_calls_go_where_they_should(name: str, seed: int, tmp_path: Path) -> None:
    """Some sites to a new symbol, some to an imported one, some to a function of the module, some
    NOPs, the others as they were; and the table has those that still are as they were."""
    build, rng = BUILDS[name], random.Random(seed)
    path = _module(build, tmp_path)
    data = path.read_bytes()
    before = _linked(build, path)
    original = before.calls["one"]
    nops = "-mfentry" not in build.flags or "-mnop-mcount" in build.flags
    assert set(before.calls.values()) == {0 if nops else AT["__fentry__"]}
    assert len(before.table) == len(NAMES)
    names = rng.sample(NAMES, len(NAMES))
    wanted = dict.fromkeys(NAMES, original)
    for function, to in zip(names, ["my_tracer", "printk", "one", "nop"], strict=False):
        verb = ["disable"] if to == "nop" else ["enable", "--to", to]
        result = ftpatch(*verb, "--in-place", path, "-f", function)
        assert result.code == 0, result
        wanted[function] = AT.get(to, before.at["one"] if to == "one" else 0)
    after = _linked(build, path)
    assert after.calls == {
        function: after.at["one"] if value == before.at["one"] else value
        for function, value in wanted.items()
    }
    in_order = sorted(NAMES, key=lambda function: before.at[function])
    record = dict(zip(in_order, sorted(before.table), strict=True))
    kept = [n for n in NAMES if wanted[n] == original or not build.is_module]
    assert sorted(after.table) == sorted(record[n] - before.at[n] + after.at[n] for n in kept)
    assert ftpatch("undo", "--all", path).code == 0
    assert path.read_bytes() == data


@every_build
def test_linked_once_more_into_a_module(name: str, tmp_path: Path) -> None:
    """The journal is no section, so it is gone then: only sites with a record are known."""
    build = BUILDS[name]
    path = _module(build, tmp_path)
    assert ftpatch("enable", "--in-place", path, "--to", "my_tracer", "-f", "one").code == 0
    assert ftpatch("enable", "--in-place", path, "--to", "other", "-f", "two").code == 0
    assert ftpatch("enable", "--in-place", path, "--to", "my_tracer", "-f", "two").code == 0
    again = tmp_path / "again.ko"
    _ld(build, "-r", "-o", again, path)
    assert read_loose(again).undefined() == read_loose(path).undefined()
    assert "other" not in read_loose(again).undefined()
    first, second = (_linked(build, p) for p in (path, again))
    left = 4 if build.is_module else 6
    assert first.calls == second.calls and len(first.table) == len(second.table) == left
    row = ftpatch("status", "--json", again).only
    assert (row["sites"], row["dropped"]) == (left, 0)


@every_build
def test_what_objdump_says(name: str, tmp_path: Path) -> None:
    """The relocation stands beside the instruction."""
    build = BUILDS[name]
    gcc = TARGETS[build.arch].gcc
    tool = shutil.which(gcc.removesuffix("gcc") + "objdump")
    if tool is None:
        pytest.skip(f"no objdump for {build.arch}")
    path = _module(build, tmp_path)
    assert ftpatch("enable", "--in-place", path, "--to", "my_tracer", "-f", "three").code == 0
    done = subprocess.run(
        [tool, "-dr", str(path)], capture_output=True, text=True, check=True
    ).stdout
    body = done.split("<three>:\n")[1].split("\n\n")[0].splitlines()
    kind = {"x86_64": "PLT32", "i386": "PC32", "arm64": "CALL26", "riscv64": "CALL_PLT",
            "s390x": "PLT32DBL"}  # fmt: skip
    verb = {"x86_64": "call", "i386": "call", "arm64": "bl", "riscv64": "auipc",
            "s390x": "brasl"}  # fmt: skip
    (at,) = (i for i, text in enumerate(body) if "my_tracer" in text and "R_" in text)
    assert kind[build.arch] in body[at] and verb[build.arch] in body[at - 1]


def test_a_table_that_must_not_be_empty(tmp_path: Path) -> None:
    """s390x's loader wants memory for a trampoline each, and gets none of no size: a null slot
    stays that no relocation fills."""
    path = _module(BUILDS["s390x"], tmp_path)
    data = path.read_bytes()
    assert ftpatch("enable", "--in-place", path, "--to", "my_tracer").code == 0
    elf = ELFFile(io.BytesIO(path.read_bytes()))
    assert elf.get_section_by_name("__mcount_loc").data() == bytes(8)
    assert elf.get_section_by_name(".rela__mcount_loc")["sh_size"] == 0
    assert ftpatch("check", path).code == 0
    row = ftpatch("status", "--json", path).only
    assert (row["sites"], row["dropped"]) == (6, 6)
    assert ftpatch("disable", "--in-place", path, "-f", "one").code == 0
    assert ftpatch("status", "--json", path).only["dropped"] == 5
    assert len(_linked(BUILDS["s390x"], path).table) == 1
    assert ftpatch("undo", "--all", path).code == 0 and path.read_bytes() == data


def test_the_second_record_of_a_site_meets_a_trampoline(tmp_path: Path) -> None:
    """s390x's, whose place in memory no one knows before the module is loaded."""
    path = _module(BUILDS["s390x"], tmp_path)
    data = bytearray(path.read_bytes())
    table = ELFFile(io.BytesIO(data)).get_section_by_name(".rela__mcount_loc")
    first, second = (table["sh_offset"] + 24 * number for number in (0, 1))
    data[second + 8 : second + 24] = data[first + 8 : first + 24]  # r_info, r_addend
    path.write_bytes(data)
    said = ftpatch("check", path)
    assert said.code == 1 and " actual:   c0:04:??:??:??:??\n" in said.out


def test_names_of_sections_and_symbols_in_one_table(tmp_path: Path) -> None:
    """As clang leaves them. A symbol more, a section more: all have their names still."""
    build = BUILDS["arm64-clang"]
    source = tmp_path / "demo.c"
    source.write_text(SOURCE)
    path = TARGETS["arm64"].compile("clang", [f"{PAD}2", "-DOBJECT"], source)
    names = [s.name for s in ELFFile(io.BytesIO(path.read_bytes())).iter_sections()]
    if ".shstrtab" in names:
        pytest.skip("this clang has two")
    assert ftpatch("enable", "--in-place", path, "--to", "my_tracer").code == 0
    after = [s.name for s in ELFFile(io.BytesIO(path.read_bytes())).iter_sections()]
    assert after[: len(names)] == names
    assert read_loose(path).undefined() == {"my_tracer", "printk"}
    assert set(_linked(build, path).calls.values()) == {AT["my_tracer"]}
