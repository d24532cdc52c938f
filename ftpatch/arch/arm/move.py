# SPDX-License-Identifier: MIT
"""32-bit ARM: instructions that run elsewhere, of both sets (arm_sets/).

A jump is one instruction of four bytes, `b` or `b.w`, which needs no register and goes 32 or 16 MB
either way, within its set. There is no trap (stubs/arm/system_calls.c).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from ftpatch.arch.arm.encode import BX_PC
from ftpatch.arch.arm_sets.a32 import ALWAYS, branch_a32, moved_a32, reach_a32
from ftpatch.arch.arm_sets.t32 import branch_t32, moved_t32, reach_t32, size_t32
from ftpatch.arch.disassemble import engine
from ftpatch.arch.move import Immovable, Moved, Mover, PlainMover, Why

__all__ = ["ARM_MOVE"]

CALLS: Final = ("bl", "blx", "blx/i")
ENDS: Final = ("b", "ends", *CALLS)


class _Arm(PlainMover):
    jump_size: ClassVar[int] = 4
    trap: ClassVar[bytes] = b"\xf7\xde"  # udf #0xf7, in T32
    signal: ClassVar[str] = "SIGILL"
    pad: ClassVar[bytes] = b"\x00\xf0\x20\xe3"  # nop

    def __init__(self, is_second: Callable[[int], bool | None] = lambda at: at % 2 == 1) -> None:
        self._is_second = is_second

    def of(self, is_second: Callable[[int], bool | None]) -> Mover:
        """One for an image."""
        return _Arm(is_second)

    def _is_thumb(self, at: int) -> bool:
        thumb = self._is_second(at)
        if thumb is None:
            raise Immovable(Why.SET, f"{at:#x}")
        return thumb

    def landing(self, code: bytes) -> int:
        """bx pc; nop, by which T32 enters a PLT: what is behind it is for both sets."""
        return 4 if int.from_bytes(code[:4], "little") == BX_PC else 0

    def joined(self, before: bytes) -> bool:
        """Told by the instructions' boundaries (branches.py)."""
        return False

    def reaches(self, at: int, to: int) -> bool:
        """imm24: 32 MB either way, or 16 MB."""
        reach = reach_t32 if self._is_thumb(at) else reach_a32
        return reach(at & ~1, to & ~1)

    def jump(self, at: int, to: int) -> bytes:
        """``b to``, in the set of ``at``."""
        return _jump(at & ~1, to & ~1, f"{at & ~1:#x}: b {to & ~1:#x}", self._is_thumb(at))

    def move(self, code: bytes, at: int, to: int, need: int) -> Moved:
        """Move the first instructions of ``code``, and add ``b`` back."""
        thumb, at, to = self._is_thumb(at), at & ~1, to & ~1
        insns = []
        for address, insn in _split(code, at, thumb):
            if address >= at + need:
                break
            insns.append((address, insn))
        end = insns[-1][0] + len(insns[-1][1]) if insns else at
        if end - at < need:
            raise Immovable(Why.SHORT, f"{end:#x}: end of the function")
        out, ends = b"", False
        for address, insn in insns:
            here, within, text = to + len(out), range(at + 1, end), _text(insn, address, thumb)
            if thumb:
                moved, form = moved_t32(insn, address, here, within, text)
            else:
                word = int.from_bytes(insn, "little")
                moved, form = moved_a32(word, address, here, within, text)
            out += moved
            behind = address + len(insn)
            if form in ENDS and behind < end:
                why = Why.RETURNS if form in CALLS else Why.ENDS
                raise Immovable(why, text)
            # Where a condition may not hold, control goes on.
            ends = form in ENDS and (thumb or insn[3] >> 4 >= ALWAYS)
        return Moved(end - at, out if ends else out + _jump(to + len(out), end, "", thumb))


def _jump(at: int, to: int, text: str, thumb: bool) -> bytes:
    text = text or f"{at:#x}: b {to:#x}"
    return branch_t32(at, to, text) if thumb else branch_a32(at, to, text)


def _text(insn: bytes, address: int, thumb: bool) -> str:
    """Disassemble it; refuse an invalid instruction."""
    for read in engine("arm", "CS_MODE_THUMB" if thumb else "").disasm(insn, address):
        if read.size == len(insn):
            return f"{address:#x}: {read.mnemonic} {read.op_str}".rstrip()
    raise Immovable(Why.UNKNOWN, f"{address:#x}: {insn[::-1].hex()}")


def _split(code: bytes, at: int, thumb: bool) -> list[tuple[int, bytes]]:
    """Instructions with their addresses."""
    out: list[tuple[int, bytes]] = []
    here = 0
    while here + 2 <= len(code) and len(out) < 8:
        size = size_t32(int.from_bytes(code[here : here + 2], "little")) if thumb else 4
        if here + size > len(code):
            break
        out.append((at + here, code[here : here + size]))
        here += size
    return out


ARM_MOVE: Final[Mover] = _Arm()
