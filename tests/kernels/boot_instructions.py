# SPDX-License-Identifier: MIT
"""How many instructions each call of a boot takes, by QEMU's log of an untouched kernel.

gdb stops the machine where a window of the boot begins; from there on QEMU runs one instruction a
block and logs each, so an instruction's number is its line's. With -icount shift=0 the guest's
clocks count instructions as well: a tick is a line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import capstone
import numpy as np
from numpy.typing import NDArray

from .boot_oracle import blocks
from .gdb_boots import seen_by_gdb
from .independent import Vmlinux

__all__ = ["PER_INSTRUCTION", "TICKS", "Span", "instructions", "spans"]

TICKS = {
    "arm64": ("-cpu", "max,pauth-impdef=on,cntfrq=1000000000"),
    "riscv64": ("-icount", "shift=8"),
}
"""Words for QEMU by which a counter's tick is an instruction, where its rate is another one, or by
which an instruction has more than one of them."""
PER_INSTRUCTION = {"riscv64": 2.56}
"""Ticks of these: of 10 MHz, in an instruction's 256 nanoseconds."""
LONGEST = 15  # bytes of an instruction
# Runs inside gdb. The word for one instruction a block was renamed in QEMU 8.1.
SCRIPT = """
connect()
def run_to(at):
    point = gdb.Breakpoint("*%#x" % at, type=gdb.BP_HARDWARE_BREAKPOINT, internal=True)
    gdb.execute("continue", to_string=True)
    assert gdb.newest_frame().pc() & mask == at
    point.delete()
run_to(words["first"])
gdb.execute("monitor singlestep on", to_string=True)
gdb.execute("monitor one-insn-per-tb on", to_string=True)
gdb.execute("monitor logfile " + words["log"], to_string=True)
gdb.execute("monitor log exec,nochain", to_string=True)
run_to(words["last"])
gdb.execute("monitor log none", to_string=True)
"""


@dataclass(frozen=True)
class Span:
    """A call: its site's ip, and the numbers of the instructions at which it was at its site and at
    which its caller, or the function that it was left for, went on; -1 if that was later."""

    ip: int
    begin: int
    end: int


def instructions(image: Vmlinux, scratch: Path, first: int, last: int) -> NDArray[np.uint64]:
    """The address of each instruction that is run from address ``first`` up to ``last``."""
    log = scratch / f"{image.path.parent.name}.exec"
    words = {"first": first, "last": last, "log": str(log)}
    try:
        seen_by_gdb(image, scratch, SCRIPT, words, *TICKS.get(image.arch, ()))
        with log.open("rb") as file:
            ran = np.fromiter(blocks(file), np.uint64)
    finally:
        log.unlink(missing_ok=True)
    if image.arch in PER_INSTRUCTION:
        # Timers come that much sooner; an instruction that one has kept from being run is logged
        # again when it is.
        ran = ran[np.append(True, ran[1:] != ran[:-1])]
    return ran


def spans(image: Vmlinux, ran: NDArray[np.uint64]) -> list[Span]:
    """The calls of functions that have a site, in the order in which they began.

    A stack of return addresses tells where each ends. What looks like a call and goes on behind it
    is a NOP by now; a return to an address that is not on the stack is a jump (a retpoline), and
    takes its own call off.
    """
    calls, returns = _kinds(image, ran)
    sites = set(image.sites.tolist())
    stack: list[tuple[int, list[int]]] = []  # where each goes on, and the rows that end there
    found: list[list[int]] = []
    at = ran.tolist()
    for number, (here, there) in enumerate(pairwise(at)):
        if here in sites:
            rows = stack[-1][1] if stack else []
            for row in rows:  # left by a jump
                found[row][2] = number
            rows[:] = [len(found)]
            found.append([here, number, -1])
        if here in calls:
            if there != calls[here]:
                stack.append((calls[here], []))
        elif here in returns:
            depth = next((d for d in range(len(stack) - 1, -1, -1) if stack[d][0] == there), None)
            for _, rows in stack[depth:] if depth is not None else stack[-1:]:
                for row in rows:
                    found[row][2] = number + 1
            del stack[depth if depth is not None else -1 :]
    return [Span(*row) for row in found]


def _kinds(image: Vmlinux, ran: Iterable[np.uint64]) -> tuple[dict[int, int], set[int]]:
    """Where each call that was run returns to, and the returns."""
    image.disassembler.detail = True
    calls, returns = {}, set()
    for at in np.unique(np.fromiter(ran, np.uint64)).tolist():
        start = image.offset(at)
        code = bytes(image.data[start : start + LONGEST])
        insn = next(image.disassembler.disasm(code, at, 1), None)
        if insn is None:
            continue
        call = insn.group(capstone.CS_GRP_CALL) or insn.mnemonic in ("bl", "blr")
        back = insn.group(capstone.CS_GRP_RET)
        if image.arch == "riscv64":  # Capstone 5 puts none into these groups
            word = int.from_bytes(code[: insn.size], "little")
            call = insn.mnemonic == "c.jalr" or word & 0xFFF in (0xEF, 0xE7)  # jal ra; jalr ra
            back = word in (0x8082, 0x8067)  # c.jr ra; jalr zero, 0(ra)
        if call:
            calls[at] = at + insn.size
        elif back:
            returns.add(at)
    return calls, returns
