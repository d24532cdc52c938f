# SPDX-License-Identifier: MIT
"""loongarch64: the pair, its veneer and PLT entries as GNU as and ld make them and objdump reads
them, kernels in memory, and programs of every form that gcc makes, run by QEMU."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ftpatch.arch import Abi, State, architectures
from ftpatch.arch.disassemble import disassemble
from tests.kernels.loongarch64 import instructions
from tests.support.command import ftpatch
from tests.support.compiled import MAIN, TARGETS
from tests.support.cross_root import use_cross_root
from tests.support.elf_writer import Image, Section, Segment, Symbol
from tests.support.gnu import link_at

ARCH = {arch.name: arch for arch in architectures().values()}["loongarch64"]
PAD, PG, KERNEL = Abi(pad=True), Abi(mcount=0x1000), Abi(pad=True, kernel=True)
IP, TOP, REACH = 0x9000_0000_0100_0000, 1 << 64, 1 << 27
NOP, MOVE, BL = (bytes.fromhex(text) for text in ("00004003", "2c001500", "00000054"))
EIGHT = np.array([8], np.uint8)


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    use_cross_root("loongarch64")


def _u64(*values: int) -> NDArray[np.uint64]:
    return np.array([value % TOP for value in values], np.uint64)


def _rows(*codes: bytes, width: int = 8) -> NDArray[np.uint8]:
    return np.array([list(code.ljust(width, b"\0")[:width]) for code in codes], np.uint8)


def _call(ip: int, addr: int, abi: Abi = PAD) -> bytes:
    made = ARCH.make_call(_u64(ip), _u64(addr), EIGHT, abi)[0].tobytes()
    return bytes(made if abi.pad else made[:4])


def test_gnu_as_makes_the_same_bytes() -> None:
    rng = random.Random(258)
    ips = [IP + 0x1000 * n for n in range(200)]
    addrs = [ip + (rng.randrange(-REACH + 8, REACH) & ~3) for ip in ips]
    ips += [IP - 0x1000, IP - 0x2000, IP - 0x3000]
    addrs += [IP - 0x1000 - REACH + 4, IP - 0x2000 + REACH - 4, IP - 0x3000]
    pieces = [(ip, "move $t0, $ra; bl target", addr) for ip, addr in zip(ips, addrs, strict=True)]
    linked = link_at("loongarch64", pieces)
    widths = np.repeat(EIGHT, len(ips))
    made = ARCH.make_call(_u64(*ips), _u64(*addrs), widths, PAD)
    assert [row.tobytes() for row in made] == linked
    pieces = [(ip, "bl target", addr) for ip, addr in zip(ips, addrs, strict=True)]
    made = ARCH.make_call(_u64(*ips), _u64(*addrs), widths, PG)
    assert [row.tobytes()[:4] for row in made] == link_at("loongarch64", pieces)
    (nops,) = link_at("loongarch64", [(IP, "nop; nop", 0)])
    assert ARCH.make_nop(EIGHT, b"", PAD)[0].tobytes() == nops == NOP * 2


def test_objdump_reads_the_same_target() -> None:
    rng = random.Random(27)
    addrs = [IP + (rng.randrange(-REACH + 4, REACH) & ~3) for _ in range(2000)]
    made = ARCH.make_call(_u64(*[IP] * 2000), _u64(*addrs), np.repeat(EIGHT, 2000), PAD)
    read = list(instructions(made.tobytes()))
    assert set(read[::2]) == {("move", "$t0, $ra")}
    assert [(name, IP + 4 + int(way)) for name, way in read[1::2]] == [("bl", a) for a in addrs]


@given(st.integers(0, TOP - 1), st.integers(-REACH + 4, REACH - 4), st.booleans())
def test_decode_is_the_inverse(at: int, distance: int, pad: bool) -> None:
    ip, addr, abi = at & ~3, (at & ~3) + (distance & ~3), PAD if pad else PG
    assert ARCH.reachable(_u64(ip), _u64(addr))[0]
    code = ARCH.make_call(_u64(ip), _u64(addr), EIGHT, abi)
    state, found, width, got = ARCH.decode(code, _u64(ip), abi)
    assert (state[0], found[0], got[0]) == (State.CALL, addr % TOP, False)
    assert width[0] == (8 if pad else 4)
    assert ARCH.unlinked(code, abi)[0].tobytes() == (MOVE + BL if pad else BL + bytes(4))


def test_what_it_reaches() -> None:
    inside = [IP - REACH + 4, IP, IP + 4, IP + REACH - 4]
    outside = [IP - REACH, IP + REACH, IP + 2, IP + 1, 0, IP + (1 << 32)]
    assert ARCH.reachable(_u64(*[IP] * 4), _u64(*inside)).all()
    assert not ARCH.reachable(_u64(*[IP] * 6), _u64(*outside)).any()


def test_states() -> None:
    texts = ["nop; nop", "move $t0, $ra; nop", "move $t0, $ra; bl target"]
    texts += ["nop; ret", "nop; bl target", "move $t0, $ra; b target", "move $t1, $ra; bl target"]
    texts += ["move $t0, $ra; break 0", "andi $zero, $zero, 1; nop", "bl target; nop"]
    places = [IP + 64 * number for number in range(len(texts))]
    linked = link_at(
        "loongarch64", [(at, text, IP + 0x4000) for at, text in zip(places, texts, strict=True)]
    )
    want = [State.NOP] * 2 + [State.CALL] + [State.UNEXPECTED] * 8
    codes = _rows(*linked, bytes(8))
    for abi in (PAD, KERNEL):
        state, addr, width, got = ARCH.decode(codes, _u64(*places, IP), abi)
        assert state.tolist() == want and (width == 8).all() and not got.any()
        assert addr.tolist() == [IP + 0x4000 if value == State.CALL else 0 for value in want]
    state, _, width, _ = ARCH.decode(codes, _u64(*places, IP), PG)
    assert (width == 4).all()
    assert np.flatnonzero(state == State.CALL).tolist() == [9]
    assert np.flatnonzero(state == State.NOP).tolist() == [0, 3, 4]


def test_nops_at_the_start_are_counted() -> None:
    rows = _rows(NOP * 16, NOP * 3 + BL + NOP * 12, BL + NOP * 15, bytes(64), width=64)
    assert ARCH.prefix(rows).tolist() == [64, 12, 0, 0]
    assert not ARCH.landing(rows).any()


def test_ftrace_init_compares_the_first_nop() -> None:
    """ftrace_init_nop, arch/loongarch/kernel/ftrace_dyn.c."""
    start, code = ARCH.init_expects(_u64(IP, IP), KERNEL)
    assert start == 0 and [row.tobytes() for row in code] == [NOP] * 2
    assert [row.tobytes() for row in ARCH.after_init(_u64(IP), KERNEL)] == [MOVE]
    assert ARCH.drop(KERNEL) == 0 and ARCH.skipped(KERNEL) == (0,)
    assert ARCH.call_adjust(_u64(IP), _rows(NOP * 2), KERNEL).tolist() == [IP]


def test_compiled_is_what_the_compiler_left() -> None:
    codes = _rows(NOP * 2, MOVE + NOP, _call(IP, IP + 8), b"\xff" * 8)
    made = ARCH.compiled(_u64(*[IP] * 4), codes, np.repeat(EIGHT, 4), PAD)
    assert [row.tobytes() for row in made] == [NOP * 2, MOVE + NOP, NOP * 2, NOP * 2]
    made = ARCH.compiled(_u64(IP), codes[:1], EIGHT, PG)
    assert made[0].tobytes()[:4] == _call(IP, 0x1000, PG)


def test_unlinked_is_what_gnu_as_makes(tmp_path: Path) -> None:
    source, part, text = tmp_path / "call.s", tmp_path / "call.o", tmp_path / "text"
    source.write_text("move $t0, $ra\nbl target\n")
    TARGETS["loongarch64"].compile("gcc", [], source)
    tool = "loongarch64-linux-gnu-"
    command = [f"{tool}objcopy", "-O", "binary", "-j", ".text", str(part), str(text)]
    subprocess.run(command, check=True)
    made = ARCH.unlinked(_rows(_call(IP, IP - 0x12344), NOP * 2), PAD)
    assert [row.tobytes() for row in made] == [text.read_bytes(), NOP * 2]
    command = [f"{tool}readelf", "-rW", str(part)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(
        r"^0*(\w+) +\w{8}(\w{8}) R_LARCH_B26 +0+ target \+ (\w+)$", said, re.MULTILINE
    )
    assert found is not None, said
    assert [int(word, 16) for word in found.groups()] == [
        *(ARCH.call_field, ARCH.calls[0], ARCH.call_addend)
    ]


FAR = "pcaddu18i $t1, %call36(target); jirl $zero, $t1, 0"


def test_a_veneer_is_what_gnu_ld_links() -> None:
    rng = random.Random(36)
    edge = (1 << 37) - (1 << 17)
    distances = [0, 4, -4, edge - 4, -(1 << 37), 0x1FFFC, 0x20000, -0x20000, -0x20004]
    distances += [rng.randrange(-edge, edge) & ~3 for _ in range(100)]
    pieces = [(IP + 0x1000 * n, FAR, IP + 0x1000 * n + d) for n, d in enumerate(distances)]
    made = [ARCH.veneer(at, addr) for at, _, addr in pieces]
    assert made == link_at("loongarch64", pieces)
    for code, (at, _, addr) in zip(made, pieces, strict=True):
        assert len(code) == ARCH.veneer_size and ARCH.veneer_target(code, at) == addr
        assert ARCH.veneer_target(NOP + code, at) == 0
    for distance in (edge, -(1 << 37) - 4, 2):
        assert ARCH.veneer(IP, IP + distance) == b""


def test_a_plt_entry_gives_its_slot(tmp_path: Path) -> None:
    """As ld makes it, and readelf names the slot."""
    target = TARGETS["loongarch64"]
    program = target.build(tmp_path, ("gcc", []), flags=["-no-pie", "-Wl,-z,lazy"])
    command = ["loongarch64-linux-gnu-readelf", "-rW", str(program)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    slot = next(int(line[:16], 16) for line in said.splitlines() if " printf@" in line)
    command = [
        *("loongarch64-linux-gnu-objdump", "-d", "-j", ".plt", "--no-show-raw-insn"),
        str(program),
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (found,) = re.findall(r"^(\w+) <printf@plt>:", said, re.MULTILINE)
    at = int(found, 16)
    command = ["loongarch64-linux-gnu-objcopy", "-O", "binary", "-j", ".plt", str(program)]
    subprocess.run([*command, str(tmp_path / "plt")], check=True)
    (start,) = re.findall(r"^(\w+) <_PROCEDURE_LINKAGE_TABLE_>:", said, re.MULTILINE)
    code = (tmp_path / "plt").read_bytes()[at - int(start, 16) :]
    assert ARCH.veneer_target(code, at) == -slot
    assert ARCH.veneer_target(code[4:], at + 4) == 0


@pytest.mark.parametrize("addr", [IP, IP + 0x7FC, IP + 0xFFC, 0xFFFF_8000_0000_1804, 0x1234_5678])
def test_an_entry_of_a_modules_plt_gives_its_target(addr: int) -> None:
    """module_emit_plt_entry() makes the upper parts, and lets jirl add the lowest twelve bits."""
    text = (
        f"lu12i.w $t1, {_signed(addr >> 12, 20)}; lu32i.d $t1, {_signed(addr >> 32, 20)}; "
        f"lu52i.d $t1, $t1, {_signed(addr >> 52, 12)}; jirl $zero, $t1, {addr & 0xFFF}"
    )
    (code,) = link_at("loongarch64", [(IP, text, 0)])
    assert ARCH.veneer_target(code, IP) == addr


def _signed(value: int, bits: int) -> int:
    low = value & (1 << bits) - 1
    return low - (low >> bits - 1 << bits)


READ = """
    nop; move $t0, $ra; move $sp, $fp; ret; jr $t1; jirl $ra, $t0, -8; jirl $zero, $r21, 16
    pcaddu18i $t1, -5; pcaddu12i $t3, 32; break 0; break 5; move $s8, $a7
"""


def test_what_it_reads_is_what_objdump_prints() -> None:
    (code,) = link_at("loongarch64", [(IP, READ.replace("\n", ";"), 0)])
    ours = [(i.mnemonic, i.operands) for i in disassemble("loongarch64", code, IP)]
    assert ours == list(instructions(code))
    texts = ["bl target; b target", "fld.d $fa0, $sp, -16; nop"]
    (branches, others) = link_at(
        "loongarch64", [(IP, texts[0], IP - 0x1000), (IP + 64, texts[1], 0)]
    )
    read = disassemble("loongarch64", branches, IP)
    assert [(i.mnemonic, i.target) for i in read] == [("bl", IP - 0x1000), ("b", IP - 0x1000)]
    read = disassemble("loongarch64", others + b"\0\0", IP)
    assert [(i.mnemonic, i.operands) for i in read] == [(".word", "0x2bbfc060"), ("nop", "")]


def test_32_bits_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "small.o"
    path.write_bytes(Image(machine=258, bits=32, type=1).build())
    said = ftpatch("status", path)
    assert said.code == 2
    assert "a 32-bit LoongArch object, which is not supported" in said.err


TEXT, TABLE = 0x9000_0000_0022_0000, 0x9000_0000_0130_0000
FUNCTIONS = ("vfs_read", "vfs_write", "schedule", "ftrace_caller")


def _kernel(first: dict[str, bytes] | None = None) -> Image:
    """A vmlinux of three functions and ftrace_caller, with a table; ``first`` is other code at the
    start of some."""
    text, symbols, records = b"", [], []
    for number, name in enumerate(FUNCTIONS):
        at = TEXT + 64 * number
        symbols.append(Symbol(name, at, 64))
        body = (first or {}).get(name, NOP * 2) if name != "ftrace_caller" else b""
        body += bytes.fromhex("2000004c")  # ret
        text += body + NOP * ((64 - len(body)) // 4)
        records += [at] * (name != "ftrace_caller")
    table = struct.pack(f"<{len(records)}Q", *records)
    for name, at in (("__start_mcount_loc", TABLE), ("__stop_mcount_loc", TABLE + len(table))):
        symbols.append(Symbol(name, at, 0, type=0, section=".init.data"))
    symbols += [Symbol("_stext", TEXT, 0, type=0), Symbol("_etext", TEXT + len(text), 0, type=0)]
    symbols += [
        Symbol("_sinittext", TEXT + len(text), 0, type=0),
        Symbol("_einittext", TEXT + len(text), 0, type=0),
    ]
    return Image(
        machine=258,
        sections=[
            Section(".text", text, TEXT, flags=6),
            Section(".init.data", table, TABLE, flags=3),
        ],
        segments=[Segment((".text",)), Segment((".init.data",), 6)],
        symbols=symbols,
    )


def test_a_kernel_is_enabled_and_undone(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(_kernel().build())
    original = path.read_bytes()
    status = ftpatch("status", "--json", path).only
    assert (status["arch"], status["container"]) == ("loongarch64", "vmlinux")
    assert status["states"] == {"nop": 3, "call": 0, "unexpected": 0}
    assert ftpatch("check", path).code == 0
    done = ftpatch("enable", "--json", "--in-place", "-f", "vfs_*", path)
    assert (done.code, done.only["changed"], done.only["dropped"]) == (0, 2, 2), done.err
    status = ftpatch("status", "--json", path).only
    assert status["states"] == {"nop": 1, "call": 2, "unexpected": 0}
    assert status["targets"] == {"ftrace_caller": 2}
    said = ftpatch("diff", path).out
    assert "move $t0, $ra; bl ftrace_caller" in said
    assert ftpatch("check", path).code == 0
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == original


def test_probes_of_a_kernel_are_in_its_own_words(tmp_path: Path) -> None:
    """Names of registers as arch/loongarch/kernel/ptrace.c has them."""
    path = tmp_path / "vmlinux"
    path.write_bytes(_kernel().build())
    probe = "p:one vfs_read %a0 fp=%fp ip=%pc s=%r23"
    said = ftpatch("probe", path, "--print-events", probe).out
    assert said == "p:kprobes/one vfs_read arg1=%r4 fp=%r22 ip=%csr_era s=%r23\n"


BROKEN = {
    "moved": (MOVE + NOP, "2c:00:15:00"),
    "called": (MOVE + BL, "2c:00:15:00"),
    "break": (bytes.fromhex("00002a00") + NOP, "00:00:2a:00"),
    "other nop": (bytes.fromhex("00044003") + NOP, "00:04:40:03"),
    "second word": (NOP + bytes.fromhex("00002a00"), ""),  # which ftrace_init does not read
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_ftrace_init_refuses_is_foretold(tmp_path: Path, case: str) -> None:
    code, actual = BROKEN[case]
    path = tmp_path / "vmlinux"
    path.write_bytes(_kernel({"vfs_write": code}).build())
    said = ftpatch("check", path).out
    if not actual:
        assert "ftrace bug ]" not in said
        return
    for line in ("ftrace failed to modify", "vfs_write+0x0/0x40", f" actual:   {actual}"):
        assert line in said, said
    assert "expected:" not in said


PADS = ["2", "3", "5", "3,1", "4,2", "9,4"]


@pytest.mark.parametrize("linked", ["-no-pie", "-pie", "-static", "-static-pie"])
@pytest.mark.parametrize("pad", PADS)
def test_programs_are_enabled_run_and_undone(tmp_path: Path, pad: str, linked: str) -> None:
    target = TARGETS["loongarch64"]
    code = "-fPIE" if linked.endswith("pie") and linked != "-no-pie" else "-fno-pie"
    compiled = ("gcc", [f"-fpatchable-function-entry={pad}", code])
    program = target.build(tmp_path, compiled, flags=[linked])
    original = program.read_bytes()
    assert target.run(program) == "27 0\n"
    status = ftpatch("status", "--json", program).only
    assert status["arch"] == "loongarch64" and status["states"]["nop"] == status["sites"] == 2
    done = ftpatch("enable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert target.run(program) == "27 3\n"
    assert ftpatch("check", program).code == 0
    done = ftpatch("disable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert target.run(program) == "27 0\n"
    assert ftpatch("undo", "--all", program).code == 0 and program.read_bytes() == original
    done = ftpatch("enable", "-f", "one", "--json", "--in-place", program)
    assert done.only["changed"] == 1 and target.run(program) == "27 2\n"
    assert ftpatch("undo", program).code == 0 and program.read_bytes() == original


@pytest.mark.parametrize("linked", ["-no-pie", "-pie", "-static"])
def test_calls_of_mcount_are_switched(tmp_path: Path, linked: str) -> None:
    """-pg: gcc has no -mrecord-mcount here, so the records are made of its assembly."""
    target = TARGETS["loongarch64"]
    source, assembly = tmp_path / "main.c", tmp_path / "main.s"
    source.write_text(MAIN)
    code = "-fPIE" if linked == "-pie" else "-fno-pie"
    command = [*target.command("gcc"), "-O2", code, "-pg", "-S", str(source), "-o", str(assembly)]
    subprocess.run(command, check=True)
    record = r'.Lcall\g<0>:\n\g<0>\n\t.section __mcount_loc,"aw"\n\t.dword .Lcall\n\t.previous'
    text, calls = re.subn(
        r"^\tbl\t\S*_mcount\)?$", record, assembly.read_text(), flags=re.MULTILINE
    )
    assert calls == 2
    for number in range(calls):
        text = re.sub(r"\.Lcall\t.*:", f".Lcall{number}:", text, count=1)
        text = text.replace(".dword .Lcall\n", f".dword .Lcall{number}\n", 1)
    assembly.write_text(text)
    caller = tmp_path / "caller.S"
    lines = target.caller.replace("    move $t1, $ra\n    move $ra, $t0\n    jr $t1", "    ret")
    caller.write_text(f"    .text{lines}")
    counter = tmp_path / "counter.c"
    counter.write_text("int calls;\n")
    parts = [target.compile("gcc", [], path) for path in (caller, counter, assembly)]
    program = target.link(parts, [linked, "-Wl,-z,notext"], tmp_path / "program")
    status = ftpatch("status", "--json", program).only
    assert status["states"] == {"nop": 0, "call": 2, "unexpected": 0}
    assert status["targets"] == {"_mcount": 2}
    original = program.read_bytes()
    assert target.run(program) == "27 0\n"
    assert ftpatch("enable", "--json", "--in-place", program).only["changed"] == 2
    assert target.run(program) == "27 3\n"
    assert ftpatch("disable", "--json", "--in-place", program).only["changed"] == 2
    assert target.run(program) == "27 0\n"
    assert ftpatch("undo", "--all", program).code == 0 and program.read_bytes() == original


def test_objects_are_enabled_before_they_are_linked(tmp_path: Path) -> None:
    """Whatever ld relaxes: the new relocation is at the pad's second instruction."""
    target = TARGETS["loongarch64"]
    program = target.build(tmp_path, ("gcc", ["-fpatchable-function-entry=2", "-fno-pie"]))
    part = tmp_path / "0.o"
    done = ftpatch("enable", "--to", "ftrace_caller", "--json", "--in-place", part)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    target.link([tmp_path / "caller.o", part], ["-no-pie"], program)
    assert target.run(program) == "27 3\n"
    assert ftpatch("status", "--json", program).only["states"]["call"] == 2


def test_pads_shorter_than_a_call_are_refused(tmp_path: Path) -> None:
    program = TARGETS["loongarch64"].build(tmp_path, ("gcc", ["-fpatchable-function-entry=1"]))
    before = program.read_bytes()
    done = ftpatch("enable", "--in-place", program)
    assert done.code == 1 and program.read_bytes() == before
    assert "compile with -fpatchable-function-entry=2" in done.err + done.out


def test_features_that_it_lacks_are_named(tmp_path: Path) -> None:
    program = TARGETS["loongarch64"].build(tmp_path, ("gcc", ["-fpatchable-function-entry=2"]))
    for words, reason in ((("watch", program, "calls:-w-"), "not supported on"),):
        said = ftpatch(*words)
        assert said.code == 2 and reason in said.err, said.err
        assert said.err.count("\n") == 1, said.err
