# SPDX-License-Identifier: MIT
"""Where a traced boot says that a kernel died is where the kernel's console and addr2line say so.

Faults are planted behind the site of a function that the first task runs late, by which time
exceptions are reported, or come from the user space that a kernel is given.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .booted import BEHIND, hang, planted, triple_fault
from .cli import RUN_LIMIT
from .guest import cpio
from .independent import Vmlinux
from .qemu import need

PLANTED = "driver_init"
CALLERS = ("kernel_init_freeable", "kernel_init")
OUTERMOST = ("kernel_init", "ret_from_fork")  # x86's has been C since 6.6
TRAP = 0x0FE0_0000  # ppc64le's trap, with no condition: twi 31, 0, 0
WARNED = "init_irq_proc"  # whatever else it does can be left out
LOCK = {
    "x86_64": "_raw_spin_lock_irqsave",
    "i386": "_raw_spin_lock_irqsave",
    "arm64": "queued_spin_lock_slowpath",  # the others are inlined
    "riscv64": "_raw_spin_lock_irqsave",
    "ppc64le": "_raw_spin_lock_irqsave",
}
ADDR2LINE = {
    "x86_64": "addr2line",
    "i386": "addr2line",
    "arm64": "aarch64-linux-gnu-addr2line",
    "riscv64": "riscv64-linux-gnu-addr2line",
    "ppc64le": "powerpc64le-linux-gnu-addr2line",
}
PLACE = re.compile(
    r"^(?:\[.*?\] ?)?(?:[RE]IP: (?:0010:)?|e?pc : |NIP \[\w+\] )(\w+)\+(0x\w+)/", re.MULTILINE
)
FAULT = re.compile(
    r"^(?:\[.*?\] ?)?(?:BUG: |kernel BUG at |Unable to handle |Internal error: |Oops|PANIC: "
    r"|Insufficient stack |invalid opcode: )",
    re.MULTILINE,
)
"""What a kernel says first of a fault. While the tracer waits for a reader that does not run, a
watchdog may report a place of its own before."""
CRASHING = {  # sources of /init
    "x86_64": ".globl _start\n_start: ud2\n",
    "i386": ".globl _start\n_start: ud2\n",
    "arm64": ".globl _start\n_start: udf #0\n",
    "riscv64": ".globl _start\n_start: unimp\n",
    "ppc64le": ".globl _start\n_start: .long 0\n",
}
CC = {
    "x86_64": ("gcc",),
    "i386": ("gcc", "-m32"),
    "arm64": ("aarch64-linux-gnu-gcc",),
    "riscv64": ("riscv64-linux-gnu-gcc",),
    "ppc64le": ("powerpc64le-linux-gnu-gcc",),
}


@dataclass(frozen=True)
class Told:
    """What was said of a boot, its exit code, and the console."""

    code: int
    lines: list[str]
    console: str


def _boot(path: Path, scratch: Path, *words: str | Path) -> Told:
    kept = scratch / "kept"
    command = [sys.executable, "-m", "ftpatch", "boot", str(path), "--last", "600000"]
    command += ["--keep", str(kept), "--format", "profile", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    console = (kept / "console").read_text(errors="replace")
    shutil.rmtree(kept)
    said = (line for line in done.stderr.splitlines() if not line.startswith("qemu-system-"))
    lines = [line.removeprefix("ftpatch: ") for line in said]
    return Told(done.returncode, lines, console)


def _site(image: Vmlinux, name: str = PLANTED) -> int:
    return int(image.sites[image.names.index(name)])


def _insns(*words: int) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def _pair(here: int, there: int, link: str) -> bytes:
    """riscv64's auipc t1; jalr to anywhere, by way of t1."""
    rd = {"zero": 0, "ra": 1}[link]
    distance = there - here & 0xFFFF_FFFF
    high = distance + 0x800 & 0xFFFF_F000
    low = distance - high & 0xFFF
    return _insns(0x317 | high, 0x0003_0067 | rd << 7 | low << 20)


def _relative(image: Vmlinux, here: int, name: str) -> int:
    """ppc64le's bl to a function's local entry."""
    return 0x4800_0001 | (_site(image, name) - 4 - here) & 0x3FF_FFFC


def _undefined(image: Vmlinux) -> bytes:
    if image.arch == "riscv64":
        return _insns(0xC000_1073)  # unimp
    return _insns(0) if image.arch in ("arm64", "ppc64le") else bytes.fromhex("0f0b")  # udf #0; ud2


def _null(image: Vmlinux) -> bytes:
    if image.arch == "arm64":
        return _insns(0xAA1F_03E0, 0xF940_0000)  # mov x0, xzr; ldr x0, [x0]
    if image.arch == "riscv64":
        return _insns(0x0000_3503)  # ld a0, 0(zero)
    if image.arch == "ppc64le":
        return _insns(0x3920_0000, 0xE929_0000)  # li 9, 0; ld 9, 0(9)
    return bytes.fromhex("31c0 8b00")  # xor eax, eax; mov eax, [eax]


def _overflow(image: Vmlinux) -> bytes:
    if image.arch == "arm64":
        return _insns(0xA9BF_7BFD, 0x17FF_FFFF)  # stp x29, x30, [sp, #-16]!; b .-4
    if image.arch == "riscv64":
        # addi sp, sp, -16; sd ra, 0(sp); j .-8
        return _insns(0xFF01_0113, 0x0011_3023, 0xFF9F_F06F)
    return bytes.fromhex("e8fbffffff")  # call itself


def _bug(image: Vmlinux) -> bytes:
    """A jump to the first BUG of the kernel's table."""
    there, here = _first_bug(image), _site(image) + BEHIND[image.arch]
    if image.arch == "arm64":
        return _insns(0x1400_0000 | (there - here) // 4 & 0x3FF_FFFF)  # b
    if image.arch == "riscv64":
        return _pair(here, there, "zero")
    if image.arch == "ppc64le":
        high, low = divmod(there - here - 4 + 0x8000, 0x1_0000)
        # bcl 20, 31, .+4; mflr 9; addis 9, 9, high; addi 9, 9, low; mtctr 9; bctr
        code = _insns(0x429F_0005, 0x7D28_02A6, 0x3D29_0000 | high & 0xFFFF)
        return code + _insns(0x3929_0000 | (low - 0x8000) & 0xFFFF, 0x7D29_03A6, 0x4E80_0420)
    return b"\xe9" + (there - here - 5 & 0xFFFF_FFFF).to_bytes(4, "little")  # jmp


def _first_bug(image: Vmlinux) -> int:
    """Of a struct bug_entry (include/asm-generic/bug.h): two distances (i386: addresses), line and
    flags, of which the lowest is a WARN's. ppc64le's may trap on a condition."""
    at, end = image.address("__start___bug_table"), image.address("__stop___bug_table")
    for entry in range(at, end, 12):
        raw = image.data[image.offset(entry) :][:12].tobytes()
        if not raw[10] & 1:
            relative = image.bits == 64  # CONFIG_GENERIC_BUG_RELATIVE_POINTERS
            value = int.from_bytes(raw[:4], "little", signed=relative)
            there = entry + value if relative else value
            code = image.data[image.offset(there) :][:4].tobytes()
            if image.arch != "ppc64le" or code == _insns(TRAP):
                return there
    raise AssertionError("no BUG in the table")


def _deadlock(image: Vmlinux) -> bytes:
    """Take a lock on the stack that is taken, without interrupts."""
    here, lock = _site(image) + BEHIND[image.arch], image.address(LOCK[image.arch])
    if image.arch == "arm64":
        call = 0x9400_0000 | (lock - here - 20) // 4 & 0x3FF_FFFF
        # mov w1, #1; str x1, [sp, #-16]!; mov x0, sp; msr daifset, #2; nop; bl lock
        return _insns(0x5280_0021, 0xF81F_0FE1, 0x9100_03E0, 0xD503_42DF, 0xD503_201F, call)
    if image.arch == "riscv64":
        # csrci sstatus, 2 (SIE); addi sp, sp, -16; sd zero, 0(sp); mv s1, sp
        code = _insns(0x1001_7073, 0xFF01_0113, 0x0001_3023, 0x0001_0493)
        for _ in range(2):  # mv a0, s1; call lock
            code += _insns(0x0004_8513) + _pair(here + len(code) + 4, lock, "ra")
        return code
    if image.arch == "ppc64le":
        # li 9, 2 (RI); mtmsrd 9, 1; stdu 1, -64(1); li 9, 0; std 9, 32(1)
        code = _insns(0x3920_0002, 0x7D21_0164, 0xF821_FFC1, 0x3920_0000, 0xF921_0020)
        for _ in range(2):  # addi 3, 1, 32; bl lock
            call = _relative(image, here + len(code) + 4, LOCK[image.arch])
            code += _insns(0x3861_0020, call)
        return code
    code = bytes.fromhex("6a00")  # push 0
    for _ in range(2):
        code += bytes.fromhex("4889e7" if image.bits == 64 else "89e0")  # mov rdi, rsp (eax, esp)
        behind = here + len(code) + 5
        code += b"\xe8" + (lock - behind & 0xFFFF_FFFF).to_bytes(4, "little")
    return code


def _warn(image: Vmlinux) -> bytes:
    """Return after __warn(0, 0, here, TAINT_WARN, 0, 0), which goes on."""
    here, warn = _site(image, WARNED) + BEHIND[image.arch], image.address("__warn")
    if image.arch == "arm64":
        call = 0x9400_0000 | (warn - here - 28) // 4 & 0x3FF_FFFF
        # stp x29, x30, [sp, #-16]!; mov x0, xzr; mov w1, wzr; adr x2, .; mov w3, #9; mov x4, xzr
        code = _insns(0xA9BF_7BFD, 0xAA1F_03E0, 0x2A1F_03E1, 0x1000_0002, 0x5280_0123, 0xAA1F_03E4)
        # mov x5, xzr; bl __warn; ldp x29, x30, [sp], #16; ret
        return code + _insns(0xAA1F_03E5, call, 0xA8C1_7BFD, 0xD65F_03C0)
    if image.arch == "riscv64":
        # addi sp, sp, -16; sd ra, 0(sp); li a0, 0; li a1, 0; auipc a2, 0; li a3, 9; li a4, 0
        code = _insns(0xFF01_0113, 0x0011_3023, 0x513, 0x593, 0x617, 0x0090_0693, 0x713)
        code += _insns(0x793) + _pair(here + len(code) + 4, warn, "ra")  # li a5, 0; call __warn
        return code + _insns(0x0001_3083, 0x0101_0113, 0x8067)  # ld ra, 0(sp); addi sp; ret
    if image.arch == "ppc64le":
        # mflr 0; std 0, 16(1); stdu 1, -64(1); li 3, 0; li 4, 0; bcl 20, 31, .+4; mflr 5; li 6, 9
        code = _insns(0x7C08_02A6, 0xF801_0010, 0xF821_FFC1, 0x3860_0000, 0x3880_0000, 0x429F_0005)
        code += _insns(0x7CA8_02A6, 0x38C0_0009, 0x38E0_0000, 0x3900_0000)  # li 7, 0; li 8, 0
        code += _insns(_relative(image, here + len(code), "__warn"))
        # addi 1, 1, 64; ld 0, 16(1); mtlr 0; blr
        return code + _insns(0x3821_0040, 0xE801_0010, 0x7C08_03A6, 0x4E80_0020)
    if image.bits == 64:
        # xor edi, edi; xor esi, esi; lea rdx, [rip]; mov ecx, 9; xor r8d, r8d; xor r9d, r9d
        code, behind = bytes.fromhex("31ff 31f6 488d1500000000 b909000000 4531c0 4531c9"), "c3"
    else:
        # xor eax, eax; xor edx, edx; mov ecx, here; push 0; push 0; push 9
        code = bytes.fromhex("31c0 31d2 b9") + here.to_bytes(4, "little")
        code, behind = code + bytes.fromhex("6a00 6a00 6a09"), "83c40c c3"  # add esp, 12; ret
    distance = warn - here - len(code) - 5 & 0xFFFF_FFFF
    return code + b"\xe8" + distance.to_bytes(4, "little") + bytes.fromhex(behind)


PLACED = {"undefined": _undefined, "null": _null, "bug": _bug, "overflow": _overflow}


@pytest.mark.parametrize("fault", PLACED)
def test_the_place_is_the_consoles(traceable: Vmlinux, fault: str, scratch: Path) -> None:
    if fault == "overflow" and traceable.arch in ("i386", "ppc64le"):
        pytest.skip("no guard pages below its stacks")
    with planted(traceable, _site(traceable), PLACED[fault](traceable), scratch) as path:
        told = _boot(path, scratch)
    assert told.code == 1, told.lines
    fault_at = FAULT.search(told.console)
    assert fault_at is not None, told.console[-3000:]
    place = PLACE.search(told.console, fault_at.start())
    assert place is not None, told.console[-3000:]
    assert place[1] == PLANTED or fault == "bug"
    first = told.lines[1]
    assert f" in {place[1]}+{place[2]}, " in first
    assert _line(traceable, place[1], int(place[2], 16)).endswith(first.rpartition(", ")[2])
    _is_followed_by_calls(told.lines, [] if fault == "bug" else [PLANTED, *CALLERS])


def test_a_hang_is_placed(traceable: Vmlinux, scratch: Path) -> None:
    lock = LOCK[traceable.arch]
    with planted(traceable, _site(traceable), _deadlock(traceable), scratch) as path:
        told = _boot(path, scratch, "-f", "*init*", "-f", lock, "--idle", "20")
    assert told.code == 1, told.lines
    assert "no events and no console output for 20 seconds" in told.lines[0]
    assert any(line.startswith(f"hang in {lock}+") for line in told.lines)
    _is_followed_by_calls(told.lines, [lock, PLANTED, *CALLERS])


def test_a_hang_with_interrupts_is_placed(traceable: Vmlinux, scratch: Path) -> None:
    """The clock's interrupts go on, and have events for ever."""
    with planted(traceable, _site(traceable), hang(traceable), scratch) as path:
        told = _boot(path, scratch, "--idle", "10", "--last", "2000000")
    assert told.code == 1, told.lines
    assert "no new function and no console output for 10 seconds" in told.lines[0]
    assert told.lines[1].startswith(f"hang in {PLANTED}+"), told.lines
    _is_followed_by_calls(told.lines, [PLANTED, *CALLERS])


def test_a_warn_is_marked_and_the_boot_goes_on(traceable: Vmlinux, scratch: Path) -> None:
    with planted(traceable, _site(traceable, WARNED), _warn(traceable), scratch) as path:
        told = _boot(path, scratch, "-f", "*init*")
        stopped = _boot(path, scratch, "-f", "*init*", "--stop-on", "warn")
    assert told.code == 0, told.lines
    assert "given no root file system" in told.lines[1]
    assert any(line.startswith(f"1 WARN, the first at {WARNED}+0x") for line in told.lines)
    assert stopped.code == 1, stopped.lines
    assert stopped.lines[1].startswith(f"WARN in {WARNED}+0x"), stopped.lines
    _is_followed_by_calls(stopped.lines, [WARNED, *CALLERS])
    last = next(line for line in stopped.lines if line.startswith("last functions: "))
    assert last.endswith(f"{WARNED}, __warn")


def test_a_triple_fault_is_placed(traceable: Vmlinux, scratch: Path) -> None:
    """Interrupts come between the function's entry and the fault: theirs is entered last."""
    if traceable.arch in ("arm64", "riscv64", "ppc64le"):
        pytest.skip("a triple fault is x86's")
    site = _site(traceable)
    code = bytes.fromhex("b900000001 ffc9 75fc")  # mov ecx, 1 << 24; dec ecx; jnz .-2
    code += triple_fault(traceable, site + len(code))
    with planted(traceable, site, code, scratch) as path:
        told = _boot(path, scratch)
    assert told.code == 1
    calls = next(line for line in told.lines if line.startswith("calls: "))
    entered = calls.removeprefix("calls: ").partition(" < ")[0]
    place = f"triple fault: the processor shut down after entering {entered}+"
    assert told.lines[1].startswith(place)
    left = [line.replace("before them, on another stack: ", "calls: ") for line in told.lines]
    _is_followed_by_calls(left[3 if left[3].startswith("calls: ") else 2 :], [PLANTED, *CALLERS])


def test_a_kernel_without_a_root_is_no_fault(traceable: Vmlinux, scratch: Path) -> None:
    """Every event of the boot comes through the ring."""
    told = _boot(traceable.path, scratch)
    assert told.code == 0
    assert "given no root file system" in told.lines[1]
    assert "Unable to mount root fs" in told.console
    assert int(told.lines[0].split()[0]) > 2_500_000
    assert "lost" not in told.lines[0]


@pytest.mark.parametrize("what", ["initrd", "init"])
def test_user_space_that_fails_is_told(traceable: Vmlinux, what: str, scratch: Path) -> None:
    initrd = scratch / "initrd"
    initrd.write_bytes(b"no archive" * 100 if what == "initrd" else _crashing(traceable, scratch))
    told = _boot(traceable.path, scratch, "-f", "*init*", "--", "-initrd", initrd)
    assert told.code == 1
    said = {"initrd": "VFS: Unable to mount root fs", "init": "Attempted to kill init!"}[what]
    assert told.lines[1].startswith("Kernel panic - not syncing: ")
    assert said in told.lines[1] and said in told.console


def _crashing(image: Vmlinux, scratch: Path) -> bytes:
    """An archive whose /init is killed by its first instruction."""
    need(CC[image.arch][0])
    source, out = scratch / "init.S", scratch / "init"
    source.write_text(CRASHING[image.arch])
    words = ("-nostdlib", "-static", "-Wl,--build-id=none", str(source), "-o", str(out))
    subprocess.run([*CC[image.arch], *words], check=True, timeout=RUN_LIMIT)
    return cpio({"init": out.read_bytes()})


def _is_followed_by_calls(lines: list[str], wanted: Iterable[str]) -> None:
    """Inlined functions and those without a site are not called."""
    calls = next(line for line in lines if line.startswith("calls: "))
    names = calls.removeprefix("calls: ").split(" < ")
    assert names
    left = iter(names)
    assert all(name in left for name in wanted if name in names or name == PLANTED), calls
    if PLANTED in wanted:
        assert names[-1] in OUTERMOST


def _line(image: Vmlinux, name: str, offset: int) -> str:
    tool = ADDR2LINE[image.arch]
    need(tool)
    at = f"{image.address(name) + offset:#x}"
    done = subprocess.run(
        [tool, "-e", str(image.path), at], capture_output=True, text=True, check=True
    )
    path, _, line = done.stdout.split()[0].rpartition(":")
    return f"{path}:{line}"
