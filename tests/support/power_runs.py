# SPDX-License-Identifier: MIT
"""One ppc64le program under qemu that runs pieces of code, each from its own registers, and tells
what these, the stack and the place where it went on are then."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.gnu import runner

__all__ = ["BASE", "EXITS", "Left", "Run", "run_all"]

BASE = 0x1000_0000
"""Link address of the text; code is placed at distances from it."""
EXITS = {"target": 0x8000, "lr": 0x8020, "ctr": 0x8040}
"""Distances from BASE of where code may go on, besides behind a piece."""
RUNS = 0x2_0000
"""The same of what begins the runs."""
STACK_SIZE, HELD = 1024, 296
"""Bytes written of each run: of the stack, half of it below its pointer, and of registers."""
SETUP = r"""
	.machine power10
	.abiversion 2
	.text
	.globl _start
base:
_start:	b first
fill:	addi 4, 13, 1016
	li 5, 128
	mtctr 5
1:	stdu 5, 8(4)
	bdnz 1b
	blr
	.macro enter state, at, then
	lis 13, context@ha
	addi 13, 13, context@l
	bl fill
	lis 29, \then@ha
	addi 29, 29, \then@l
	std 29, 296(13)
	lis 29, \state@ha
	addi 29, 29, \state@l
	ld 3, 256(29)
	mtctr 3
	ld 3, 264(29)
	mtcr 3
	ld 3, 272(29)
	mtxer 3
	ld 3, 280(29)
	mtlr 3
	addi 1, 13, 1536
	.irpc n, 0234567
	ld \n, 8 * \n(29)
	.endr
	.irp n, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30, 31
	ld \n, 8 * \n(29)
	.endr
	ld 29, 8 * 29(29)
	b base + \at
	.endm
	.macro exit number
	std 31, 304(13)
	li 31, \number
	b common
	.endm
common:	std 31, 288(13)
	ld 31, 304(13)
	.irpc n, 0123456789
	std \n, 8 * \n(13)
	.endr
	.irp n, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	std \n, 8 * \n(13)
	.endr
	mfctr 3
	std 3, 256(13)
	mfcr 3
	std 3, 264(13)
	mfxer 3
	std 3, 272(13)
	mflr 3
	std 3, 280(13)
	li 0, 4				# write
	li 3, 1
	mr 4, 13
	li 5, 296
	sc
	li 0, 4
	li 3, 1
	addi 4, 13, 1024
	li 5, 1024
	sc
	ld 3, 296(13)
	mtctr 3
	bctr
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """``at``: distance from BASE of the code to run. ``values`` of registers by name: r0 and so on,
    ctr, cr, xer, lr; but r1 is the stack pointer, and r13 is taken."""

    at: int
    values: Mapping[str, int]


@dataclass(frozen=True)
class Left:
    """The registers r0 to r31, ctr, cr, xer and lr, the number of the exit (0: behind a piece), and
    the stack's bytes by their distance from what r1 was."""

    registers: tuple[int, ...]
    exit: int
    stack: Mapping[int, int]


def run_all(
    code: Mapping[int, bytes], sites: Sequence[int], runs: Sequence[Run], folder: Path
) -> list[Left]:
    """Link ``code`` by its distance from BASE, run it, and tell what each of the ``runs`` left. At
    ``sites`` the next instruction leads to exit 0."""
    placed = {at: _words(held) + "exit 0\n" * (at in sites) for at, held in code.items()}
    placed |= {at: f"exit {n}\n" for n, at in enumerate(EXITS.values(), 1)}
    text = SETUP + "".join(f".org {at:#x}\n{placed[at]}" for at in sorted(placed))
    text += f".org {RUNS:#x}\nfirst:\n"
    data = ".data\n.balign 16\ncontext: .space 2048\n"
    for n, run in enumerate(runs):
        text += f"enter state{n}, {run.at:#x}, run{n}\nrun{n}:\n"
        names = [*(f"r{i}" for i in range(32)), "ctr", "cr", "xer", "lr"]
        held = ", ".join(f"{run.values.get(name, 0):#x}" for name in names)
        data += f"state{n}: .quad {held}\n"
    text += "li 0, 234\nli 3, 0\nsc\n"  # exit_group
    source, program = folder / "runs.s", folder / "runs"
    source.write_text(text + data)
    tools = "powerpc64le-linux-gnu-"
    subprocess.run([f"{tools}as", "-o", f"{program}.o", source], check=True)
    linked = [f"{tools}ld", f"-Ttext={BASE:#x}", "-o", str(program), f"{program}.o"]
    subprocess.run(linked, check=True)
    done = subprocess.run(
        [*runner("ppc64le"), "-cpu", "power10", program], check=True, capture_output=True
    )
    size = HELD + STACK_SIZE
    assert len(done.stdout) == size * len(runs)
    return [_left(done.stdout[i * size :][:size]) for i in range(len(runs))]


def _words(code: bytes) -> str:
    numbers = [int.from_bytes(code[i : i + 4], "little") for i in range(0, len(code), 4)]
    return "".join(f".long {number:#x}\n" for number in numbers)


def _left(told: bytes) -> Left:
    words = [int.from_bytes(told[i : i + 8], "little") for i in range(0, HELD, 8)]
    stack = {at - 512: byte for at, byte in enumerate(told[HELD:])}
    return Left(tuple(words[:36]), words[36], stack)
