# SPDX-License-Identifier: MIT
"""ppc64le: the pair, its veneer, global and local entries, as GNU as and ld make and Capstone
reads them; programs are in test_pads, kernels in tests/kernels."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ftpatch.arch import Abi, State, architectures
from ftpatch.arch.local_entry import local_entry
from tests.support.command import ftpatch
from tests.support.compiled import END, MAIN, TARGETS
from tests.support.elf_writer import Image, Section, Segment, Symbol
from tests.support.gnu import link_at
from tests.support.readers import disassembled, target_of

ARCH = {arch.name: arch for arch in architectures().values()}["ppc64le"]
PAD, PG = Abi(pad=True), Abi(mcount=0x1000)
KERNEL = Abi(pad=True, kernel=True)
IP, TOP, REACH = 0xC000_0000_0100_0000, 1 << 64, 1 << 25
NOP, MFLR, BL, BLR = (bytes.fromhex(t) for t in ("00000060", "a602087c", "01000048", "2000804e"))
GLOBAL = bytes.fromhex("90ff4c3c94984238")  # addis r2,r12,-112; addi r2,r2,-26476
LARGE = bytes.fromhex("f8ff4ce81462427c")  # ld r2,-8(r12); add r2,r2,r12


def _u64(*values: int) -> NDArray[np.uint64]:
    return np.array([value % TOP for value in values], np.uint64)


def _rows(*codes: bytes, width: int = 8) -> NDArray[np.uint8]:
    return np.array([list(code.ljust(width, b"\0")[:width]) for code in codes], np.uint8)


def _states(*codes: bytes) -> list[int]:
    found = []
    for abi in (PAD, KERNEL, PG):
        state, addr, width, got = ARCH.decode(_rows(*codes), _u64(*[IP] * len(codes)), abi)
        assert (width == 8).all() and not got.any() and not addr[state != State.CALL].any()
        found.append(state.tolist())
    assert found[0] == found[1] == found[2]
    return [int(value) for value in found[0]]


def test_states() -> None:
    assert _states(NOP * 2, MFLR + NOP) == [State.NOP] * 2
    assert _states(MFLR + BL) == [State.CALL]
    others = [
        "000000602000804e",  # nop; blr: a pad of one
        "0000006001000048",  # nop; bl: r0 holds nothing
        "a602087c00000048",  # mflr r0; b
        "a602087c03000048",  # mflr r0; bla 0
        "a602087c00004260",  # mflr r0; ori 2,2,0
        "a602687c01000048",  # mflr r3; bl
        "6000000060000000",  # of the other byte order
        "0000000000000000",
    ]
    assert _states(*map(bytes.fromhex, others)) == [State.UNEXPECTED] * len(others)


@given(st.integers(0, TOP - 1), st.integers(-REACH, REACH - 4))
def test_decode_is_the_inverse(at: int, distance: int) -> None:
    ip, addr = at & ~3, (at & ~3) + (distance & ~3)
    assert ARCH.reachable(_u64(ip), _u64(addr))[0]
    code = ARCH.make_call(_u64(ip), _u64(addr), np.array([8], np.uint8), PAD)
    assert ARCH.decode(code, _u64(ip), PAD)[1][0] == addr % TOP
    assert ARCH.unlinked(code, PAD)[0].tobytes() == MFLR + BL


def test_it_reaches_32_megabytes() -> None:
    """is_offset_in_branch_range(), arch/powerpc/include/asm/text-patching.h."""
    inside = [IP - REACH, IP - REACH + 4, IP, IP + REACH - 4]
    outside = [IP - REACH - 4, IP + REACH, IP + 2, IP + 1, 0, IP + (1 << 32)]
    assert ARCH.reachable(_u64(*[IP] * 4), _u64(*inside)).all()
    assert not ARCH.reachable(_u64(*[IP] * 6), _u64(*outside)).any()
    assert ARCH.reachable(_u64(0, TOP - 4), _u64(TOP - 4, 0)).all()


def test_a_veneer_is_what_gnu_ld_links_and_capstone_follows() -> None:
    rng = random.Random(32)
    places = [IP + number * 0x1000 for number in range(100)]
    pairs = [(at, at + (rng.randrange(-REACH, REACH) & ~3)) for at in places]
    pairs += [(IP - 0x1000, IP - 0x1000 - REACH), (IP - 0x2000, IP - 0x2000 + REACH - 4)]
    made = [ARCH.veneer(at, addr) for at, addr in pairs]
    assert link_at("ppc64le", [(at, "b target", addr) for at, addr in pairs]) == made
    for (at, addr), code in zip(pairs, made, strict=True):
        (insn,) = disassembled("ppc64le", code, at)
        assert (insn.mnemonic, target_of(insn), insn.size) == ("b", addr, ARCH.veneer_size)
        assert ARCH.veneer_target(code + bytes(60), at) == addr
    assert ARCH.veneer(IP, IP + REACH) == ARCH.veneer(IP, IP - REACH - 4) == b""
    assert ARCH.veneer_target(BL + bytes(60), IP) == 0


def test_where_a_site_is() -> None:
    """Kernels add four to each record; a program's may come before the global entry."""
    codes = _rows(NOP * 2 + BLR, GLOBAL + NOP * 2, LARGE + NOP * 2, width=64)
    entry = _u64(IP, IP, IP)
    assert (ARCH.call_adjust(entry, codes, PAD) - entry).tolist() == [4, 12, 12]
    assert (ARCH.call_adjust(entry, codes, KERNEL) - entry).tolist() == [4, 4, 4]
    assert (ARCH.call_adjust(entry, codes, PG) - entry).tolist() == [0, 0, 0]
    assert ARCH.lead(PAD) == ARCH.lead(PG) == 4


def test_ftrace_init() -> None:
    start, code = ARCH.init_expects(_u64(IP), KERNEL)
    assert (start, code[0].tobytes()) == (-4, NOP * 2)
    start, code = ARCH.init_expects(_u64(0x2000), PG)
    assert (start, code[0].tobytes()) == (0, bytes.fromhex("01f0ff4b"))  # bl .-0x1000
    assert ARCH.after_init(_u64(IP), KERNEL)[0].tobytes() == MFLR + NOP
    assert ARCH.after_init(_u64(IP), PG)[0].tobytes() == NOP
    # Null is tested behind call_adjust, which adds four.
    minus_4 = TOP - 4
    assert ARCH.drop(KERNEL) == minus_4 and ARCH.skipped(KERNEL) == (minus_4,)
    assert ARCH.call_adjust(_u64(minus_4), _rows(NOP, width=64), KERNEL)[0] == 0
    assert ARCH.drop(Abi(kernel=True)) == 0 and ARCH.skipped(Abi(kernel=True)) == (0,)
    assert ARCH.drop(Abi(pad=True, null_seen=True)) == 0


def test_sites_that_branch_to_stubs() -> None:
    """v6.13: one NOP, at the record itself."""
    stubs = Abi(pad=True, stubs=True, kernel=True)
    branch = bytes.fromhex("00100048")  # b .+0x1000
    codes = _rows(NOP + BLR, branch + BLR, BL + BLR, MFLR + NOP)
    state, addr, width, _ = ARCH.decode(codes, _u64(*[IP] * 4), stubs)
    assert state.tolist() == [State.NOP, State.CALL, *[State.UNEXPECTED] * 2]
    assert addr.tolist() == [0, IP + 0x1000, 0, 0] and (width == 4).all()
    assert ARCH.lead(stubs) == 0
    assert ARCH.call_adjust(_u64(IP), _rows(NOP, width=64), stubs)[0] == IP
    start, code = ARCH.init_expects(_u64(IP), stubs)
    assert (start, code[0].tobytes()) == (0, NOP)
    assert ARCH.after_init(_u64(IP), stubs)[0].tobytes() == NOP
    assert ARCH.drop(stubs) == 0 and ARCH.skipped(stubs) == (0,)
    assert ARCH.make_nop(np.array([4], np.uint8), b"", stubs)[0].tobytes() == NOP + bytes(4)
    assert ARCH.compiled(_u64(IP), codes[:1], width[:1], stubs)[0].tobytes() == NOP + bytes(4)


def test_compiled_is_what_the_compiler_left() -> None:
    codes = _rows(NOP * 2, MFLR + NOP, MFLR + BL, b"\xff" * 8)
    made = ARCH.compiled(_u64(*[IP] * 4), codes, np.full(4, 8, np.uint8), PAD)
    assert [row.tobytes() for row in made] == [NOP * 2, MFLR + NOP, NOP * 2, NOP * 2]
    idle = ARCH.make_nop(np.array([8], np.uint8), b"", PG)
    assert idle[0].tobytes() == MFLR + NOP


@pytest.mark.parametrize("name", ["ftrace_call", "ftrace_regs_call", "ftrace_graph_call"])
def test_named_sites(name: str) -> None:
    text = "b target" if "graph" in name else "bl target"
    code = ARCH.named_site_code(name, IP, IP + 0x8000, PAD)
    assert [code] == link_at("ppc64le", [(IP, text, IP + 0x8000)])
    assert ARCH.named_site_target(name, code, IP) == IP + 0x8000
    assert ARCH.named_site_target(name, NOP, IP) is None


TWO_ENTRIES = """
    .globl one, two, three
    .type one, %function
    .type two, %function
    .type three, %function
one:
    blr
two:
    addis 2, 12, .TOC.-two@ha
    addi 2, 2, .TOC.-two@l
    .localentry two, .-two
    nop
    nop
    blr
three:
    nop
    nop
    addis 2, 12, .TOC.-three@ha
    addi 2, 2, .TOC.-three@l
    .localentry three, .-three
    blr
"""


def test_local_entries_are_those_that_gnu_as_writes(tmp_path: Path) -> None:
    source, part = tmp_path / "code.s", tmp_path / "code.o"
    source.write_text(TWO_ENTRIES)
    command = [TARGETS["ppc64le"].command("gcc")[0], "-c", str(source), "-o", str(part)]
    subprocess.run(command, check=True)
    with part.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        others = [
            table.get_symbol_by_name(name)[0].entry.st_other for name in ("one", "two", "three")
        ]
    # pyelftools names the visibility and the local entry apart.
    packed = np.array([other["local"] << 5 for other in others], np.uint8)
    assert local_entry("ppc64le", packed).tolist() == [0, 8, 16]
    every = np.arange(8, dtype=np.uint8) << np.uint8(5)
    assert local_entry("ppc64le", every).tolist() == [0, 0, 4, 8, 16, 32, 64, 0]
    assert local_entry("arm64", every).tolist() == [0] * 8


BASE = 0xC000_0000_0000_0000


def _kernel(functions: int = 40, *, big: bool = False, nops: int = 2) -> bytes:
    """A kernel whose functions have a global entry, then the pad, then a return; ftrace_caller
    comes first."""
    size = 32
    text = BLR.ljust(size, b"\0") + (GLOBAL + NOP * nops + BLR).ljust(size, b"\0") * functions
    starts = [BASE + size * (number + 1) for number in range(functions)]
    image = Image(machine=21, big=big)
    table = image.table(start + 8 for start in starts)
    places = BASE + 0x10000
    end = places + len(table)
    image.sections = [
        Section(".text", text, BASE, flags=6),
        Section(".init.data", table, places, flags=3),
    ]
    image.segments = [Segment((".text",), 5), Segment((".init.data",), 6)]
    image.symbols = [
        Symbol("_stext", BASE, type=0),
        Symbol("_etext", BASE + len(text), type=0),
        Symbol("_sinittext", BASE, type=0),
        Symbol("_einittext", BASE, type=0),
        Symbol("linux_banner", places, type=1, section=".init.data"),
        Symbol("ftrace_caller", BASE, 4),
        Symbol("__start_mcount_loc", places, type=0, section=".init.data"),
        Symbol("__stop_mcount_loc", end, type=0, section=".init.data"),
        *(Symbol(f"function_{n}", at, size) for n, at in enumerate(starts)),
    ]
    return image.build()


def test_a_kernel_enabled_disabled_and_undone(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(_kernel())
    status = ftpatch("status", "--json", path).only
    assert (status["arch"], status["sites"], status["states"]["nop"]) == ("ppc64le", 40, 40)
    assert ftpatch("check", path).code == 0
    few = ["--in-place", str(path), "-f", "function_1*"]
    done = ftpatch("enable", "--json", *few).only
    assert (done["changed"], done["dropped"]) == (11, 11)
    once = path.read_bytes()
    again = ftpatch("enable", "--json", *few).only
    assert (again["changed"], again["unchanged"]) == (0, 11) and path.read_bytes() == once
    rows = ftpatch("list", "--json", path).json
    assert {row["target"] for row in rows if row["state"] == "call"} == {"ftrace_caller"}
    assert ftpatch("check", path).code == 0
    assert ftpatch("disable", "--json", "--in-place", path).only["restored"] == 11
    assert {row["state"] for row in ftpatch("list", "--json", path).json} == {"nop"}
    assert ftpatch("undo", "--all", path).code == 0 and path.read_bytes() == _kernel()


def test_a_kernel_with_stubs_is_read_and_not_enabled(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(_kernel(nops=1))
    status = ftpatch("status", "--json", path).only
    assert (status["sites"], status["states"]["nop"]) == (40, 40)
    assert ftpatch("check", path).code == 0
    done = ftpatch("enable", "--in-place", path, "-f", "function_1")
    assert done.code == 1 and "its sites branch to stubs" in done.err
    assert ftpatch("disable", "--json", "--in-place", path).only["changed"] == 0
    assert path.read_bytes() == _kernel(nops=1)


def test_the_other_byte_order_is_named(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(_kernel(big=True))
    for verb in ("status", "list", "check", "enable", "disable"):
        done = ftpatch(verb, path)
        assert done.code == 2
        assert "a 64-bit big-endian PowerPC64 ELF file, which is not supported" in done.err
        assert "ppc64le" in done.err


CALLEE = """
    .type counted, %function
    .globl counted
counted:
    addis 2, 12, .TOC.-counted@ha
    addi 2, 2, .TOC.-counted@l
    .localentry counted, .-counted
    blr
"""


DONE = "__attribute__((patchable"
TWO_FORMS = [(pie, pad) for pie in ("-fno-pie", "-fPIE") for pad in ("2", "6", "4,2")]


@pytest.mark.parametrize(("pie", "pad"), TWO_FORMS)
def test_gcc_12_leaves_the_pad_before_the_global_entry(tmp_path: Path, pie: str, pad: str) -> None:
    """Of functions with two entries: main() calls two() at its local one, behind the pad, and only
    one(), which needs no r2, is counted."""
    target = replace(TARGETS["ppc64le"], own=("-mcpu=power8",), cpu="power9")
    flags = [f"-fpatchable-function-entry={pad}", pie]
    linked = ["-pie" if pie == "-fPIE" else "-no-pie"]
    program = target.build(tmp_path, ("gcc", flags), flags=linked)
    original = program.read_bytes()
    assert target.run(program) == "27 0\n"
    assert ftpatch("enable", "--json", "--in-place", program).only["changed"] == 2
    assert target.run(program) == "27 2\n"
    assert ftpatch("check", program).code == 0
    assert ftpatch("undo", program).code == 0 and program.read_bytes() == original


LATER = """
    .text
    .globl two, address
    .type two, %function
two:
0:  addis 2, 12, .TOC.-0b@ha
    addi 2, 2, .TOC.-0b@l
    .localentry two, .-two
1:  nop
    nop
    mflr 0
    std 0, 16(1)
    stdu 1, -48(1)
    std 3, 40(1)
    bl one
    ld 4, 40(1)
    std 3, 32(1)
    addi 3, 4, 1
    bl one
    ld 4, 32(1)
    add 3, 3, 4
    addi 1, 1, 48
    ld 0, 16(1)
    mtlr 0
    blr
    .size two, .-two
    .section __patchable_function_entries, "awo", %progbits, two
    .p2align 3
    .quad 1b
    .section .note.GNU-stack, "", %progbits
"""
CALLER = """
int printf(const char *, ...);
extern int calls;
int two(int);
__attribute__((noinline)) int one(int a) { return a * 3; }
__attribute__((patchable_function_entry(0, 0)))
int main(void) {
    int (*volatile any)(int) = two;
    printf("%d %d\\n", two(4) + any(4), calls);
    return 0;
}
"""


@pytest.mark.parametrize("pie", ["-fno-pie", "-fPIE"])
def test_gcc_13_leaves_it_at_the_local_entry(tmp_path: Path, pie: str) -> None:
    """As in kernels: entered by either entry, the pad is passed."""
    target = replace(TARGETS["ppc64le"], own=("-mcpu=power8",), cpu="power9")
    two, main, caller = (tmp_path / name for name in ("two.s", "main.c", "caller.S"))
    two.write_text(LATER)
    main.write_text(CALLER)
    caller.write_text(f"    .text{target.caller}{END}")
    flags = ["-fpatchable-function-entry=2", pie]
    parts = [target.compile("gcc", [], two), target.compile("gcc", flags, main)]
    parts.append(target.compile("gcc", [], caller))
    program = target.link(parts, ["-pie" if pie == "-fPIE" else "-no-pie"], tmp_path / "program")
    assert target.run(program) == "54 0\n"
    assert ftpatch("check", program).code == 0
    rows = ftpatch("list", "--json", program).json
    assert {(row["symbol"], row["symbol_offset"]) for row in rows} == {("one", 4), ("two", 12)}
    assert ftpatch("enable", "--json", "--in-place", program).only["changed"] == 2
    assert target.run(program) == "54 6\n"
    assert ftpatch("check", program).code == 0


def test_callees_are_entered_with_r2_as_it_is(tmp_path: Path) -> None:
    """A call within a file goes to the local entry, as a linker would have it, and is listed by the
    name of the function."""
    target = TARGETS["ppc64le"]
    caller = tmp_path / "counted.s"
    caller.write_text(CALLEE)
    part = target.compile("gcc", [], caller)
    flags = ["-fpatchable-function-entry=2", "-fno-pie"]
    program = target.build(tmp_path, ("gcc", flags), flags=[str(part), "-no-pie"])
    assert ftpatch("enable", "--in-place", program, "--to", "counted").code == 0
    rows = ftpatch("list", "--json", program).json
    assert {row["target"] for row in rows} == {"counted"}
    with program.open("rb") as file:
        elf = ELFFile(file)
        start = elf.get_section_by_name(".symtab").get_symbol_by_name("counted")[0]["st_value"]
        text = next(s for s in elf.iter_segments("PT_LOAD") if s["p_flags"] & 1)
        for row in rows:
            at = int(row["ip"], 16)
            code = text.data()[at - text["p_vaddr"] :][:4]
            (insn,) = disassembled("ppc64le", code, at)
            assert target_of(insn) == start + 8
    again = ftpatch("enable", "--json", "--in-place", program, "--to", "counted").only
    assert again["changed"] == 0


def test_a_relocatable_file_calls_its_own_functions(tmp_path: Path) -> None:
    """Each pad gets a relocation, which GNU ld resolves as the kernel's loader does."""
    target = TARGETS["ppc64le"]
    source, caller, main = (tmp_path / name for name in ("work.c", "caller.S", "main.c"))
    work, rest = MAIN.split("__attribute__((patchable")
    source.write_text(work)
    main.write_text(f"extern int calls; int printf(const char *, ...); int two(int);\n{DONE}{rest}")
    caller.write_text(f"    .text{target.caller}{END}")
    parts = [target.compile("gcc", ["-fpatchable-function-entry=2"], source)]
    parts.append(target.compile("gcc", [], caller))
    whole, ld = tmp_path / "whole.o", target.gcc.removesuffix("gcc") + "ld"
    subprocess.run([ld, "-r", *map(str, parts), "-o", str(whole)], check=True)
    original = whole.read_bytes()
    done = ftpatch("enable", "--json", "--in-place", whole).only
    assert done["changed"] == 2
    with whole.open("rb") as file:
        elf = ELFFile(file)
        rows = list(elf.get_section_by_name(".rela.text").iter_relocations())
        symbols = elf.get_section_by_name(".symtab")
        calls = [
            row for row in rows if symbols.get_symbol(row["r_info_sym"]).name == "ftrace_caller"
        ]
        assert [row["r_info_type"] for row in calls] == [10, 10]  # R_PPC64_REL24
    rows = ftpatch("list", "--json", whole).json
    assert {row["target"] for row in rows} == {"ftrace_caller"}
    last = target.compile("gcc", ["-DMAIN"], main)
    program = target.link([whole, last], ["-no-pie"], tmp_path / "program")
    assert target.run(program) == "27 3\n"
    assert ftpatch("disable", "--json", "--in-place", whole).only["changed"] == 2
    program = target.link([whole, last], ["-no-pie"], tmp_path / "program")
    assert target.run(program) == "27 0\n"
    assert ftpatch("undo", "--all", whole).code == 0 and whole.read_bytes() == original


def test_a_call_out_of_a_relocatable_file_is_refused(tmp_path: Path) -> None:
    """Its loader would go by a stub that saves r2 in the frame of the caller's caller."""
    source = tmp_path / "one.c"
    source.write_text("int one(int a) { return a; }\n")
    path = TARGETS["ppc64le"].compile("gcc", ["-fpatchable-function-entry=2"], source)
    before = path.read_bytes()
    done = ftpatch("enable", "--in-place", path, "--to", "elsewhere")
    assert done.code == 2 and "elsewhere is in another file" in done.err
    assert path.read_bytes() == before
