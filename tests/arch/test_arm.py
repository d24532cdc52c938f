# SPDX-License-Identifier: MIT
"""32-bit ARM, in both of its instruction sets: branches as GNU as and ld make them and Capstone
reads them, NOPs, stubs of link editors, kernels, and programs of every form, run by QEMU."""

from __future__ import annotations

import io
import random
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ftpatch.arch import Abi, State, architectures
from ftpatch.arch.disassemble import disassemble
from tests.support.command import ftpatch
from tests.support.compiled import TARGETS
from tests.support.elf_writer import Image, Section, Segment, Symbol
from tests.support.readers import disassembled, target_of

ARCH = {arch.name: arch for arch in architectures().values()}["arm"]
PAD = Abi(pad=True)
KERNEL, THUMB_KERNEL = Abi(mcount=0xC031_2520, kernel=True), Abi(mcount=0xC031_2521, kernel=True)
TOP, FAR, NEAR = 1 << 32, 1 << 25, 1 << 24
IP = 0xC060_0000
WIDTHS = {"arm": 8, "thumb": 6}
BRANCH_AT = {"arm": 4, "thumb": 2}
REACH = {"arm": FAR, "thumb": NEAR}
SETS = ["arm", "thumb"]
NOPS = {"arm": bytes.fromhex("00f020e3") * 2, "thumb": bytes.fromhex("00bf") * 3}


def _u64(*values: int) -> NDArray[np.uint64]:
    return np.array([value % TOP for value in values], np.uint64)


def _branches(mode: str, ips: Sequence[int]) -> NDArray[np.uint64]:
    """As reachable() takes them, of pads."""
    return ARCH.branch_at(_u64(*ips), np.full(len(ips), WIDTHS[mode], np.uint8), PAD)


def _edges(mode: str, to: str) -> list[tuple[int, int, int]]:
    """Pads, the last addresses that they reach, and the first beyond (Arm ARM, A8.8.25)."""
    found, reach, step, odd = [], REACH[mode], 4 if to == "arm" else 2, SETS.index(to)
    for ip in (0x800_0000, 0x800_0042) if mode == "thumb" else (0x800_0000,):
        base = ip + BRANCH_AT[mode] + (4 if mode == "thumb" else 8)
        base &= ~(step - 1)
        found.append((ip, base - reach + odd, base - reach - step + odd))
        found.append((ip + 0x100, base + 0x100 + reach - step + odd, base + 0x100 + reach + odd))
    return found


def _rows(*codes: bytes, width: int = 8) -> NDArray[np.uint8]:
    return np.array([list(code.ljust(width, b"\0")[:width]) for code in codes], np.uint8)


def _linked(pieces: Sequence[tuple[int, str, int]]) -> list[bytes]:
    """As link_at(), with a function at each target, in Thumb where it is odd: that of a symbol
    which a script sets is unknown to GNU ld."""
    source, script = ".syntax unified\n", ""
    for i, (at, text, target) in enumerate(pieces):
        mode = SETS[target % 2]
        source += f'.section .p{i},"ax",%progbits\n{text.replace("target", f"t{i}")}\n'
        source += f'.section .q{i},"ax",%progbits\n.{mode}\n.type t{i}, %function\nt{i}: nop\n'
        script += f".p{i} {at:#x} : SUBALIGN(1) {{ *(.p{i}) }}\n"
        script += f".q{i} {target & ~1:#x} : SUBALIGN(1) {{ *(.q{i}) }}\n"
    with tempfile.TemporaryDirectory() as folder:
        part, layout, out = (Path(folder, name) for name in ("code.o", "layout.ld", "out"))
        command = ["arm-linux-gnueabihf-as", "-march=armv7-a", "-o", str(part), "-"]
        subprocess.run(command, input=source, text=True, check=True)
        layout.write_text(f"SECTIONS {{ {script} /DISCARD/ : {{ *(*) }} }}\n")
        options = ["--no-check-sections", "-z", "max-page-size=0x1000", "-e", "0", "-T"]
        command = ["arm-linux-gnueabihf-ld", *options, str(layout), str(part), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with out.open("rb") as file:
            elf = ELFFile(file)
            return [elf.get_section_by_name(f".p{i}").data() for i in range(len(pieces))]


def _call(mode: str, ip: int, addr: int, abi: Abi = PAD) -> bytes:
    width = WIDTHS[mode] if abi.pad else 4
    made = ARCH.make_call(_u64(ip), _u64(addr), np.array([width], np.uint8), abi)
    return bytes(made[0, :width].tobytes())


def _pairs(mode: str) -> list[tuple[int, int]]:
    """ips and addrs: near, and both ends of what a branch reaches, in both sets."""
    rng, reach = random.Random(mode), REACH[mode]
    step = 4 if mode == "arm" else 2
    edges = [0, 4, 8, -4, 0x1000, -0x1000, reach - 4, 16 - reach]
    distances = edges + [rng.randrange(16 - reach, reach - 4) & ~3 for _ in range(200)]
    out = []
    for base in (0x1_0000, IP, 0xBF00_0000, 0xFFFF_0000 - 2 * FAR):
        for distance in distances:
            ip = base + step * rng.randrange(8)
            out += [(ip, (ip & ~3) + distance), (ip, (ip & ~3) + distance + 2 + 1)]
    return [(ip, addr) for ip, addr in out if addr % 4 != 2]


@pytest.mark.parametrize("mode", SETS)
def test_capstone_reads_the_same_target(mode: str) -> None:
    for ip, addr in _pairs(mode):
        code = _call(mode, ip, addr)
        push, branch = disassembled(mode, code, ip)
        assert (push.mnemonic, push.op_str) in (("push", "{lr}"), ("str", "lr, [sp, #-4]!"))
        other = addr % 2 != (mode == "thumb")
        assert branch.mnemonic == ("blx" if other else "bl")
        assert target_of(branch) % TOP == addr % TOP & ~1
        ours = disassemble("arm", code, ip)[1]
        assert (ours.mnemonic, ours.target) == (branch.mnemonic, addr % TOP & ~1)


@pytest.mark.parametrize("to", SETS)
@pytest.mark.parametrize("mode", SETS)
def test_gnu_as_and_ld_make_the_same_bytes(mode: str, to: str) -> None:
    """Up to the ends of what a branch reaches, but for four bytes of which ld is wary; beyond them
    it lays a veneer."""
    rng, reach, odd = random.Random(7), REACH[mode], SETS.index(to)
    ips = [0x400_0000 + 0x40 * n for n in range(120)]
    addrs = [ip + (rng.randrange(16 - reach, reach - 8) & ~3) + odd for ip in ips]
    edges = _edges(mode, to)
    for ip, last, _ in edges:
        assert ARCH.reachable(_branches(mode, [ip]), _u64(last)).all()
        code = _call(mode, ip, last)
        assert target_of(disassembled(mode, code, ip)[1]) == last & ~1
    ips[: len(edges)] = [ip for ip, _, _ in edges]
    addrs[: len(edges)] = [last + 4 if last < ip else last - 4 for ip, last, _ in edges]
    assert ARCH.reachable(_branches(mode, ips), _u64(*addrs)).all()
    text = f".{mode}\npush {{lr}}\nbl target"
    made = [_call(mode, ip, addr) for ip, addr in zip(ips, addrs, strict=True)]
    assert made == _linked([(ip, text, addr) for ip, addr in zip(ips, addrs, strict=True)])
    far = [(ip, beyond) for ip, _, beyond in edges]
    assert not ARCH.reachable(_branches(mode, ips[: len(far)]), _u64(*[at for _, at in far])).any()
    for (ip, beyond), code in zip(far, _linked([(ip, text, at) for ip, at in far]), strict=True):
        assert target_of(disassembled(mode, code, ip)[1]) != beyond & ~1


@pytest.mark.parametrize("mode", SETS)
def test_nops_are_those_of_gnu_as(mode: str) -> None:
    nops = "nop\n" * (WIDTHS[mode] // BRANCH_AT[mode])
    idle = "add sp, sp, #4" if mode == "arm" else "add.w sp, sp, #4"
    held = _linked([(IP + 64 * n, f".{mode}\n{t}", IP) for n, t in enumerate((nops, idle))])
    abi = KERNEL if mode == "arm" else THUMB_KERNEL
    made = ARCH.make_nop(np.array([WIDTHS[mode]], np.uint8), b"", PAD)[0]
    assert made[: WIDTHS[mode]].tobytes() == held[0] == NOPS[mode]
    assert ARCH.make_nop(np.array([4], np.uint8), b"", abi)[0, :4].tobytes() == held[1]


@given(st.sampled_from(SETS), st.integers(1 << 26, TOP - (1 << 26)), st.integers(-FAR, FAR))
def test_decode_is_the_inverse(mode: str, at: int, distance: int) -> None:
    reach = REACH[mode] - 64
    ip = at & ~(3 if mode == "arm" else 1)
    addr = (ip & ~3) + (max(-reach, min(reach, distance)) & ~2)
    state, found, width, got = ARCH.decode(_rows(_call(mode, ip, addr)), _u64(ip), PAD)
    assert (state[0], found[0], width[0], got[0]) == (State.CALL, addr, WIDTHS[mode], False)
    abi = KERNEL if mode == "arm" else THUMB_KERNEL
    state, found, width, _ = ARCH.decode(_rows(_call(mode, ip, addr, abi)), _u64(ip), abi)
    assert (state[0], found[0], width[0]) == (State.CALL, addr, 4)


def test_what_it_reaches() -> None:
    """Seen from 8 bytes behind the branch, or 4 in T32; also over the end of the address space."""
    inside = [FAR + 4, 8 - FAR, NEAR + 4, FAR + 7, 8 - FAR + 1]
    assert ARCH.reachable(_u64(*[IP] * 5), _u64(*[IP + d for d in inside])).all()
    out = [FAR + 8, -FAR + 4, FAR + 9, -FAR + 7, 2]
    assert not ARCH.reachable(_u64(*[IP] * 5), _u64(*[IP + d for d in out])).any()
    assert ARCH.reachable(_u64(IP + 1), _u64(IP + NEAR)).all()
    assert not ARCH.reachable(_u64(IP + 1), _u64(IP + NEAR + 4)).any()
    assert ARCH.reachable(_u64(4, TOP - 8), _u64(TOP - 8, 4)).all()


def test_a_call_from_thumb_does_not_reach_as_far(tmp_path: Path) -> None:
    """A program of 24 MB in T32: blx reaches 16 MB, and there is no room for a veneer."""
    text = ".syntax unified\n.thumb\n.type f, %function\nf: nop\nnop\nnop\nbx lr\n"
    text += ".arm\n.type c, %function\n.org 24 << 20\nc: bx lr\n"
    text += '.section __patchable_function_entries, "a", %progbits\n.word f - 1\n'
    (tmp_path / "far.s").write_text(text.replace("f - 1", "f"))
    program = tmp_path / "far"
    tools: list[list[str | Path]] = [
        ["as", "-march=armv7-a", tmp_path / "far.s", "-o", tmp_path / "far.o"]
    ]
    tools += [["ld", tmp_path / "far.o", "-e", "0", "-o", program]]
    for name, *words in tools:
        subprocess.run([f"arm-linux-gnueabihf-{name}", *map(str, words)], check=True)
    done = ftpatch("enable", program, "--to", "c")
    assert done.code and "cannot reach" in done.err, done.err


def test_states() -> None:
    texts = ["nop\nnop", "mov r0, r0\nnop", "push {lr}\nbl target", "push {lr}\nblx target"]
    texts += ["stmdb sp!, {lr}\nbl target", "push {r4, lr}\nbl target", "nop\nbl target"]
    pieces = [(IP + 64 * n, f".arm\n{text}", IP + 0x1000) for n, text in enumerate(texts)]
    pieces[3] = (pieces[3][0], pieces[3][1], IP + 0x1001)
    short = [
        "nop\nnop\nnop",
        "mov r8, r8\nnop\nnop",
        "push {lr}\nbl target",
        "push {r4}\nbl target",
    ]
    at = IP + 0x800
    pieces += [(at + 64 * n, f".thumb\n{text}", IP + 0x1001) for n, text in enumerate(short)]
    codes = _rows(*_linked(pieces))
    ips = _u64(*[piece[0] for piece in pieces])
    state, addr, width, _ = ARCH.decode(codes, ips, PAD)
    nop, call, other = State.NOP, State.CALL, State.UNEXPECTED
    assert state.tolist() == [nop] * 2 + [call] * 3 + [other] * 2 + [nop] * 2 + [call, other]
    to = IP + 0x1000
    assert addr.tolist() == [0, 0, to, to + 1, to, 0, 0, 0, 0, to + 1, 0]
    assert width.tolist() == [8] * 7 + [6] * 3 + [8]


def test_idle_calls_of_kernels() -> None:
    """``add sp, sp, #4`` since v5.18, ``pop {lr}`` before; NOPs would leave lr on the stack."""
    texts = ["add sp, sp, #4", "ldmia sp!, {lr}", "nop", "mov r0, r0", "b target"]
    codes = _linked([(IP + 64 * n, f".arm\n{text}", IP) for n, text in enumerate(texts)])
    state = ARCH.decode(_rows(*codes), _u64(*[IP] * 5), KERNEL)[0]
    assert state.tolist() == [State.NOP] * 2 + [State.UNEXPECTED] * 3
    texts = ["add.w sp, sp, #4", "pop.w {lr}", "nop.w", "b.w target"]
    codes = _linked([(IP + 64 * n, f".thumb\n{text}", IP) for n, text in enumerate(texts)])
    assert codes[1] == bytes.fromhex("5df804eb")
    state = ARCH.decode(_rows(*codes), _u64(*[IP] * 4), THUMB_KERNEL)[0]
    assert state.tolist() == [State.NOP] * 2 + [State.UNEXPECTED] * 2


def test_nops_at_the_start_are_counted() -> None:
    texts = [".arm\nbx lr", ".arm\nnop\nmov r0, r0\nbx lr", ".thumb\nbx lr", ".thumb\nnop\nbx lr"]
    texts += [".thumb\nnop\nmov r8, r8\nnop\nbx lr"]
    codes = _linked([(IP + 64 * n, text, 0) for n, text in enumerate(texts)])
    assert ARCH.prefix(_rows(*codes, width=64)).tolist() == [0, 8, 0, 2, 6]


@pytest.mark.parametrize("mode", SETS)
def test_unlinked_is_what_gnu_as_makes(mode: str, tmp_path: Path) -> None:
    """Relocations have no addend: that stands in the code, and is that of a call of itself."""
    source, part, text = tmp_path / "call.s", tmp_path / "call.o", tmp_path / "text"
    source.write_text(f".syntax unified\n.{mode}\npush {{lr}}\nbl target\n")
    TARGETS["arm"].compile("gcc", [], source)
    command = ["arm-linux-gnueabihf-objcopy", "-O", "binary", "-j", ".text", str(part), str(text)]
    subprocess.run(command, check=True)
    held, at = text.read_bytes(), BRANCH_AT[mode]
    made = ARCH.unlinked(_rows(_call(mode, IP, IP - 0x12344), NOPS[mode]), PAD)
    assert [row.tobytes()[: WIDTHS[mode]] for row in made] == [held[: WIDTHS[mode]], NOPS[mode]]
    abi = KERNEL if mode == "arm" else THUMB_KERNEL
    made = ARCH.unlinked(_rows(_call(mode, IP, IP + 0x100, abi)), abi)
    assert made[0, :4].tobytes() == held[at : at + 4]
    said = subprocess.run(
        ["arm-linux-gnueabihf-readelf", "-rW", str(part)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    kind = {"arm": "R_ARM_CALL", "thumb": "R_ARM_THM_CALL"}[mode]
    assert kind in said and {28, 10} <= set(ARCH.calls)


STUBS = {
    ".arm\nb target": 0x40_8000,
    ".arm\nldr pc, [pc, #-4]\n.word target": 0x8000_1000,
    ".arm\nldr ip, [pc]\nbx ip\n.word target": 0x8000_1001,
    ".arm\nldr ip, [pc]\nadd pc, pc, ip\n.word target - (. + 4)": 0x8000_1000,
    ".arm\nldr ip, [pc, #4]\nadd ip, pc, ip\nbx ip\n.word target - .": 0x8000_1001,
}


@pytest.mark.parametrize("text", STUBS)
def test_stubs_of_link_editors(text: str) -> None:
    at, target = 0x40_0040, STUBS[text]
    (code,) = _linked([(at, text, target)])
    assert ARCH.veneer_target(code.ljust(64, b"\0"), at) == target
    assert ARCH.veneer_target(code[4:].ljust(64, b"\xff"), at) == 0


@pytest.mark.parametrize("flags", [["-marm"], ["-mthumb"]])
def test_a_plt_entry_gives_its_slot(flags: list[str], tmp_path: Path) -> None:
    source = tmp_path / "main.c"
    source.write_text('int puts(const char *); int main(void) { return puts("") < 0; }\n')
    part = TARGETS["arm"].compile("gcc", flags, source)
    program = TARGETS["arm"].link([part], [], tmp_path / "main")
    with program.open("rb") as file:
        elf = ELFFile(file)
        plt, rows = elf.get_section_by_name(".plt"), elf.get_section_by_name(".rel.plt")
        slots = {row["r_offset"] for row in rows.iter_relocations()}
        code, start = plt.data(), plt["sh_addr"]
    found = {
        -ARCH.veneer_target(code[at : at + 64].ljust(64, b"\0"), start + at)
        for at in range(0, len(code), 4)
    }
    assert found - {0} == slots


@pytest.mark.parametrize("far", [0x100_0000, -0x100_0000])
def test_a_veneer_of_ours(far: int) -> None:
    code = ARCH.veneer(IP, IP + far)
    (linked,) = _linked([(IP, ".arm\nb target", IP + far)])
    assert code == linked and ARCH.veneer_target(code.ljust(64, b"\0"), IP) == IP + far
    assert not ARCH.veneer(IP, IP + far + 1) and not ARCH.veneer(IP, IP + 2 * FAR)


def test_named_sites() -> None:
    texts = [".arm\nbl target", ".arm\nb target", ".arm\nmov r0, r0"]
    linked = _linked([(IP + 64 * n, text, IP + 0x800) for n, text in enumerate(texts)])
    names = ["ftrace_call", "ftrace_graph_call", "ftrace_graph_call"]
    for n, (name, addr) in enumerate(zip(names, [IP + 0x800, IP + 0x800, 0], strict=True)):
        assert ARCH.named_site_code(name, IP + 64 * n, addr, KERNEL) == linked[n]
        assert ARCH.named_site_target(name, linked[n], IP + 64 * n) == addr


BASE, SIZE, INIT = 0xC030_0000, 64, 0xC040_0000


def _kernel(mode: str, count: int = 40, *, odd: int = 0) -> bytes:
    """A kernel whose functions push, call __gnu_mcount_nc behind that, and return; some of them in
    .init.text. The first three are ftrace_caller, __gnu_mcount_nc and ftrace_stub."""
    bit = int(mode == "thumb")
    kinds = f".{mode}\n"
    helper = kinds + "mov ip, lr\nldr lr, [sp], #4\nbx ip"
    site = kinds + "push {r4, r5, lr}\npush {lr}\nbl target\npop {r4, r5, pc}"
    places = [BASE + SIZE * n for n in range(count)] + [INIT + SIZE * n for n in range(count // 4)]
    texts = [helper if n < 3 else site for n in range(len(places))]
    made = _linked([(at, t, BASE + SIZE + bit) for at, t in zip(places, texts, strict=True)])
    text = b"".join(code.ljust(SIZE, b"\0") for code in made)
    size = SIZE * count
    lead = 8 if mode == "arm" else 4
    image = Image(machine=40, bits=32)
    table = image.table(at + lead + odd for at in places[3:])
    slots = BASE + 0x20_0000
    image.sections = [
        Section(".text", text[:size], BASE, flags=6),
        Section(".init.text", text[size:], INIT, flags=6),
        Section(".init.data", table, slots, flags=3),
    ]
    image.segments = [Segment((".text",), 5), Segment((".init.text",), 5)]
    image.segments += [Segment((".init.data",), 6)]
    named = {"ftrace_caller": 0, "__gnu_mcount_nc": 1, "ftrace_stub": 2}
    image.symbols = [
        *(Symbol(name, BASE + SIZE * n + bit, SIZE) for name, n in named.items()),
        *(Symbol(f"f{n}", at + bit, SIZE) for n, at in enumerate(places) if 3 <= n < count),
        *(
            Symbol(f"f{n}", at + bit, SIZE, section=".init.text")
            for n, at in enumerate(places)
            if n >= count
        ),
        Symbol("_stext", BASE, type=0),
        Symbol("_etext", BASE + size, type=0),
        Symbol("_sinittext", INIT, type=0, section=".init.text"),
        Symbol("_einittext", INIT + len(text) - size, type=0, section=".init.text"),
        Symbol("ftrace_caller_from_init", INIT + SIZE - 8, type=0, section=".init.text"),
        Symbol("linux_banner", slots, type=1, section=".init.data"),
        Symbol("__start_mcount_loc", slots, type=0, section=".init.data"),
        Symbol("__stop_mcount_loc", slots + len(table), type=0, section=".init.data"),
    ]
    return image.build()


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("mode", SETS)
def test_a_kernel_enabled_disabled_and_undone(mode: str, odd: int, tmp_path: Path) -> None:
    """In Thumb recordmcount may leave bit 0 in the records."""
    if odd and mode == "arm":
        pytest.skip("only Thumb has the bit")
    path = tmp_path / "vmlinux"
    original = _kernel(mode, odd=odd)
    path.write_bytes(original)
    status = ftpatch("status", "--json", path).only
    assert status["states"] == {"nop": 0, "call": 47, "unexpected": 0}
    assert status["targets"] == {"__gnu_mcount_nc": 47}
    done = ftpatch("check", path)
    assert done.code == 0, done.out
    told = ftpatch("enable", "--json", "--in-place", path).only
    assert (told["changed"], told["dropped"]) == (47, 47)
    assert {row["target"] for row in ftpatch("list", "--json", path).json} == {"ftrace_caller"}
    assert ftpatch("check", path).code == 0
    told = ftpatch("disable", "--json", "--in-place", path).only
    assert (told["changed"], told["restored"]) == (47, 10)  # of .init.text
    assert {row["state"] for row in ftpatch("list", "--json", path).json} == {"nop"}
    assert ftpatch("undo", "--all", path).code == 0 and path.read_bytes() == original


@pytest.mark.parametrize("mode", SETS)
def test_a_site_that_no_longer_calls_mcount(mode: str, tmp_path: Path) -> None:
    """The kernel reports it; it is where such sites are, in the middle of its function."""
    path, ip = tmp_path / "vmlinux", BASE + 5 * SIZE + (8 if mode == "arm" else 4)
    data = bytearray(_kernel(mode))
    text = ELFFile(io.BytesIO(bytes(data))).get_section_by_name(".text")
    at, at_hex = text["sh_offset"] + ip - BASE, f"{ip % SIZE:#x}"
    data[at : at + 4] = bytes.fromhex("00f020e3" if mode == "arm" else "aff30080")  # nop; nop.w
    path.write_bytes(data)
    found = [(row["invariant"], row["symbol"]) for row in ftpatch("check", "--json", path).json]
    assert found == [("site-known", "f5+" + at_hex), ("ftrace_init", f"f5+{at_hex}/{SIZE:#x}")]


@pytest.mark.parametrize("mode", SETS)
def test_init_text_is_not_compared(mode: str, tmp_path: Path) -> None:
    """ftrace_init makes a NOP of whatever is there: no bug is foretold, but that the call goes."""
    path = tmp_path / "vmlinux"
    path.write_bytes(_kernel(mode))
    words = ["--in-place", "--keep-records", "-f"]
    assert ftpatch("disable", path, *words, "f45").code == 0
    assert ftpatch("check", path).code == 0
    assert ftpatch("enable", path, *words, "f46").code == 0
    done = ftpatch("check", path)
    assert done.code == 1 and "turns this call into a NOP" in done.out
    assert "no ftrace bug" in done.out
    assert ftpatch("disable", path, *words, "f7").code == 0
    done = ftpatch("check", path)
    assert "actual:   04:d0:8d:e2" in done.out or "actual:   0d:f1:04:0d" in done.out
    assert "one ftrace bug" in done.out


FORMS = {
    "arm": ["-marm", "-fpatchable-function-entry=2"],
    "arm-long": ["-marm", "-fpatchable-function-entry=4"],
    "arm-before": ["-marm", "-fpatchable-function-entry=4,2"],
    "thumb": ["-mthumb", "-fpatchable-function-entry=3"],
    "thumb-long": ["-mthumb", "-fpatchable-function-entry=6"],
    "thumb-before": ["-mthumb", "-fpatchable-function-entry=5,2"],
}
THUMB_CALLER = """
    .syntax unified
    .thumb
    .globl ftrace_caller
    .type ftrace_caller, %function
ftrace_caller:
    push {r0, r1}
    ldr r0, 1f
2:  add r0, pc
    ldr r1, [r0]
    add r1, r1, #1
    str r1, [r0]
    pop {r0, r1}
    mov ip, lr
    ldr lr, [sp], #4
    bx ip
    .balign 4
1:  .word calls - (2b + 4)
"""


@pytest.mark.parametrize("caller", SETS)
@pytest.mark.parametrize("linked", ["-no-pie", "-pie", "-static"])
@pytest.mark.parametrize("form", FORMS)
def test_programs_are_enabled_run_and_undone(
    tmp_path: Path, form: str, linked: str, caller: str
) -> None:
    """With a callee in either set: ``bl`` or ``blx``."""
    target = TARGETS["arm"]
    if caller == "thumb":
        target = replace(target, caller=THUMB_CALLER)
    code = "-fPIE" if linked == "-pie" else "-fno-pie"
    program = target.build(tmp_path, ("gcc", [*FORMS[form], code]), flags=[linked])
    original = program.read_bytes()
    assert target.run(program) == "27 0\n"
    status = ftpatch("status", "--json", program).only
    assert status["arch"] == "arm" and status["states"]["nop"] == status["sites"] == 2
    done = ftpatch("enable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert target.run(program) == "27 3\n"
    rows = ftpatch("list", "--json", program).json
    assert {row["target"] for row in rows} == {"ftrace_caller"}
    assert {row["symbol"] for row in rows} == {"one", "two"}
    assert ftpatch("check", program).code == 0
    again = ftpatch("enable", "--json", program, "-o", tmp_path / "again").only
    assert (again["changed"], again["unchanged"]) == (0, 2)
    done = ftpatch("disable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert target.run(program) == "27 0\n"
    assert ftpatch("undo", "--all", program).code == 0 and program.read_bytes() == original
    done = ftpatch("enable", "-f", "one", "--json", "--in-place", program)
    assert done.only["changed"] == 1 and target.run(program) == "27 2\n"


def test_a_program_in_both_sets(tmp_path: Path) -> None:
    """Each site in the set of its function."""
    target = TARGETS["arm"]
    flags = ["-mthumb", "-fpatchable-function-entry=4", "-fno-pie"]
    other = ("gcc", ["-marm", "-fpatchable-function-entry=4", "-fno-pie"])
    program = target.build(tmp_path, ("gcc", flags), other)
    assert ftpatch("enable", "--json", "--in-place", program).only["changed"] == 3
    assert target.run(program) == "27 3\n"
    rows = {row["symbol"]: row["offset"] for row in ftpatch("list", "--json", program).json}
    code = program.read_bytes()
    push = {"other": bytes.fromhex("04e02de5"), "one": bytes.fromhex("00b5")}
    assert all(code[rows[name] :].startswith(push[name]) for name in push)


@pytest.mark.parametrize("mode", SETS)
def test_calls_behind_the_prologue_are_not_traced(tmp_path: Path, mode: str) -> None:
    """One line that says what to do, not one for each site. gcc writes no table of them here."""
    gcc, program = "arm-linux-gnueabihf-gcc", tmp_path / "late"
    source = "int one(int a) { return a; }\nint main(void) { return one(0); }\n"
    words = [gcc, f"-m{mode}", "-pg", "-S", "-x", "c", "-o", "-", "-"]
    text = subprocess.run(words, input=source, capture_output=True, text=True, check=True).stdout
    call = "\tbl\t__gnu_mcount_nc\n"
    record = '.pushsection __mcount_loc, "aw"; .long 1b; .popsection\n'
    assert text.count(call) == 2
    (tmp_path / "late.s").write_text(text.replace(call, f"1:{call}{record}"))
    subprocess.run([gcc, "-pg", tmp_path / "late.s", "-o", program], check=True)
    done = ftpatch("enable", program, "--tracer", "function", "-o", tmp_path / "out")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "after the prologue" in done.err and "-fpatchable-function-entry=3" in done.err


@pytest.mark.parametrize("form", ["arm", "thumb"])
def test_pads_of_a_relocatable_file_are_not_enabled(tmp_path: Path, form: str) -> None:
    """Its calls would need relocations at places that depend on the set."""
    source = tmp_path / "one.c"
    source.write_text("int one(int a) { return a; }\nint ftrace_caller(void) { return 0; }\n")
    path = TARGETS["arm"].compile("gcc", FORMS[form], source)
    before = path.read_bytes()
    done = ftpatch("enable", "--in-place", path, "-f", "one")
    assert done.code == 1 and "link it" in done.err, done.err
    assert path.read_bytes() == before
