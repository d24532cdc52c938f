# SPDX-License-Identifier: MIT
"""Thunks of PLT entries, as GNU as and ld make them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.arch import arch_named, supporting
from ftpatch.arch.plt_thunks import plt_thunks_of
from tests.support.gnu import link_at

ENTRY = {
    "x86_64": "jmp *target(%rip)",
    "arm64": "adrp x16, target; ldr x17, [x16, #:lo12:target]; add x16, x16, #:lo12:target; br x17",
    "riscv64": "1: auipc t3, %pcrel_hi(target); ld t3, %pcrel_lo(1b)(t3); jalr t1, t3",
    "loongarch64": "pcaddu12i $t3, {high}; ld.d $t3, $t3, {low}; jirl $t1, $t3, 0",
    "s390x": "larl %r1, target; lg %r1, 0(%r1); br %r1",
    "i386": "jmp *target",
    "arm": "add ip, pc, #{a}, 12; add ip, ip, #{b}, 20; ldr pc, [ip, #{c}]!",
    "ppc64le": "ld 12, -0x7ee0(2); mtctr 12; bctr",
}
OTHERS = {
    "arm64-signed": ENTRY["arm64"].replace("br", "autia1716; br"),
    "i386-by-ebx": "jmp *target(%ebx)",
    "arm-long": "add ip, pc, #{top}, 4; " + ENTRY["arm"].replace("pc, #{a}", "ip, #{a}"),
    "ppc64le-far": "addis 12, 2, -3; ld 12, 0x7ff8(12); mtctr 12; bctr",
}
"""Further forms of an architecture's entries."""
CALL = {"x86_64": "call target", "arm64": "mov x9, x30; bl target"}
CALL["riscv64"] = "1: auipc t0, %pcrel_hi(target); jalr t0, %pcrel_lo(1b)(t0)"
CALL["s390x"], CALL["i386"] = "brasl %r1, target", "call target"
CALL["loongarch64"] = "move $t0, $ra; pcaddu12i $t1, {high}; jirl $ra, $t1, {low}"
JUMP = {"x86_64": "jmp target; int3", "arm64": "b target"}
JUMP["riscv64"] = "1: auipc t3, %pcrel_hi(target); jr %pcrel_lo(1b)(t3)"
CALL["arm"], CALL["ppc64le"] = "push {{lr}}; bl target", "mflr 0; bl target"
JUMP["arm"] = JUMP["ppc64le"] = "b target"
JUMP["s390x"], JUMP["i386"] = "jg target", JUMP["x86_64"]
JUMP["loongarch64"] = "pcaddu12i $t3, {high}; jirl $zero, $t3, {low}"
LINKED = {
    "riscv64": ".option norvc; 1: auipc t1, %pcrel_hi(target); addi t1, t1, %pcrel_lo(1b); jr t3",
    "loongarch64": "pcaddu12i $t1, {high}; addi.d $t1, $t1, {low}; jr $t3",
}
"""Behind the load of the slot in a thunk: t1 is what the entry's own jump leaves there."""
THROUGH = {
    "arm": "ldr ip, [pc, #4]; add ip, pc, ip; ldr pc, [ip]; .word target - .",
    "arm64": ENTRY["arm64"].replace("br", "nop; br"),
    "ppc64le": f"{ENTRY['ppc64le']}; nop",
}
THROUGH["arm-long"] = THROUGH["arm"]
"""In a thunk, what is not as in the entry."""
BEHIND = {"x86_64": (11, 5), "arm64": (28, 8), "riscv64": (28, 8), "loongarch64": (32, 12)}
BEHIND |= {"s390x": (20, 6), "i386": (11, 5), "arm": (24, 8), "ppc64le": (24, 8)}
"""Of a thunk, where the distance is; and the address from which it counts."""
IP = {"x86_64": 5, "arm64": 4, "riscv64": 8, "loongarch64": 8, "s390x": 6, "i386": 5}
IP |= {"arm": 8, "ppc64le": 4}
"""Of a site that is a jump, its size."""
NEAR = ("arm", "ppc64le")
"""Where branches reach 32 MB."""
places = st.integers(1 << 9, (1 << 22) - 1).map(lambda number: number * 8)


def _column(value: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([value], np.int64)


@pytest.mark.parametrize("form", [*ENTRY, *OTHERS])
@given(jump=places, slot=places, thunk=places, caller=places)
def test_bytes_are_those_of_gnu(form: str, jump: int, slot: int, thunk: int, caller: int) -> None:
    arch = form.partition("-")[0]
    entry = OTHERS.get(form) or ENTRY[arch]
    if arch in NEAR:
        jump, slot, thunk, caller = (value // 32 * 4 for value in (jump, slot, thunk, caller))
        slot += (1 << 26) * (form == "arm")
    apart = 22 if arch in NEAR else 25
    jump, thunk = jump + (2 << apart), thunk + (3 << apart)
    thunks = plt_thunks_of(arch)
    at, behind = thunk + len(_call(arch, thunk, caller)), BEHIND[arch]
    through = THROUGH.get(form, entry)
    old, new, called, jumps = link_at(
        arch,
        [
            _piece(jump, entry, slot),
            _piece(jump + 64, JUMP[arch], thunk + 64),
            _piece(thunk, CALL[arch], caller),
            _piece(at, through, slot),
        ],
    )
    if arch in LINKED:
        (linked,) = link_at(arch, [_piece(at + 8, LINKED[arch], jump + 12)])
        jumps = jumps[:8] + linked
    found = np.frombuffer(old.ljust(thunks.width, b"\0"), np.uint8).reshape(1, -1)
    expected, width = thunks.old(_column(jump), _column(slot), found)
    assert expected[0].tobytes()[: int(width[0])] == old
    changed = thunks.new(expected, _column(jump), _column(thunk))[0].tobytes()[: int(width[0])]
    assert changed == new + old[len(new) :]
    made = thunks.make(expected, _column(jump), _column(slot), _column(thunk), caller)[0].tobytes()
    assert len(made) == thunks.size and made.startswith(called + jumps)
    distance = int(arch_named(arch).order.signed(made[behind[0] : behind[0] + 4], 4)[0])
    assert thunk + behind[1] + distance == jump + IP[arch]


def _call(arch: str, thunk: int, caller: int) -> bytes:
    (code,) = link_at(arch, [_piece(thunk, CALL[arch], caller)])
    return code


def _piece(at: int, text: str, target: int) -> tuple[int, str, int]:
    """For link_at(), with the halves of a distance where relocations have none for it."""
    distance = target - at - 4 * text.startswith("move $t0")
    high = distance + 0x800 >> 12
    far = distance - 8 & 0xFFFF_FFFF
    halves = {"high": high, "low": distance - (high << 12)}
    bytes_ = {"top": far >> 28, "a": far >> 20 & 255, "b": far >> 12 & 255, "c": far & 4095}
    return at, text.format(**halves, **bytes_), target


def test_those_are_all() -> None:
    assert supporting("plt_thunks") == sorted(ENTRY)
