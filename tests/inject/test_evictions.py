# SPDX-License-Identifier: MIT
"""Evictions: from each instruction on, an emulated processor does what it did; Capstone reads where
the jumps lead."""

from __future__ import annotations

from collections.abc import Sequence

import capstone
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ftpatch.arch.move import mover_of
from ftpatch.arch.puns import puns_of
from ftpatch.inject.evictions import Evictions, Jump
from ftpatch.inject.hops import Hops
from tests.support.sampling import scaled

MOVER, PUNS = mover_of("x86_64"), puns_of("x86_64")
PAGE = 0x1000
AT, FLOOR = 0x40_1000, 0x100_0000
STACK, SLOTS = 0x7000_0000_0000, 0x80_0000
READER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
POOL = [
    "55", "53", "4157", "4154",  # push %rbp, %rbx, %r15, %r12
    "5b", "5d", "415c",  # pop
    "4883ec08", "4889fb", "4989fe", "89f2", "31f6", "0fb6c8", "660fefc0", "b897a6b5c4",
    "488d05c6e7f8a9", "488d2d84500100", "83ff09", "4883c700", "8d47f8", "0f94c0", "4885ff",
    "7400", "90", "4c63fe", "f9", "48ba0200000000000080",
]  # fmt: skip
BODY = st.lists(st.sampled_from(POOL), min_size=6, max_size=9).map(
    lambda texts: [bytes.fromhex(text) for text in texts]
)
END = bytes.fromhex("f4" * 16)  # hlt


def _hops(most: int = 8) -> Hops:
    return Hops(PUNS, MOVER, floor=FLOOR, page=PAGE, most=most)


def _found(code: bytes, hops: Hops, *, room: int = 0, until: int | None = None) -> list[Jump]:
    room = room or AT + len(code) - len(END)
    return Evictions(hops, MOVER, code, at=AT, room=room, until=until).find() or []


def _patched(code: bytes, jumps: Sequence[Jump]) -> bytes:
    out = bytearray(code)
    for one in jumps:
        out[one.at - AT : one.at - AT + len(one.hop.code)] = one.hop.code
    return bytes(out)


def _starts(instructions: Sequence[bytes]) -> list[int]:
    return [AT + sum(map(len, instructions[:n])) for n in range(len(instructions))]


@settings(max_examples=scaled(400, 60), deadline=None)
@given(BODY)
def test_what_begins_somewhere_does_what_it_did(instructions: list[bytes]) -> None:
    unicorn = pytest.importorskip("unicorn", reason="pip install unicorn")
    import unicorn.x86_const as names

    code = b"".join(instructions) + END
    jumps = _found(code, _hops())
    assume(jumps)
    machine = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
    for page in {AT & -PAGE, SLOTS, *(one.hop.at & -PAGE for one in jumps)}:
        machine.mem_map(page, PAGE)
    machine.mem_map(STACK, 2 * PAGE)
    for number, one in enumerate(jumps):
        slot = SLOTS + 64 * number
        machine.mem_write(slot, MOVER.move(code[one.at - AT :], one.at, slot, 1).code)
        machine.mem_write(one.hop.at, MOVER.jump(one.hop.at, slot))
    registers = [getattr(names, f"UC_X86_REG_R{n}") for n in range(8, 16)]
    registers += [
        getattr(names, f"UC_X86_REG_{name}")
        for name in ("RAX", "RBX", "RCX", "RDX", "RSI", "RDI", "RBP", "RSP", "EFLAGS", "XMM0")
    ]

    def run(text: bytes, start: int) -> list[object]:
        machine.mem_write(AT, text)
        machine.ctl_remove_cache(AT, AT + len(text))
        machine.mem_write(STACK, bytes(range(256)) * 32)
        for number, register in enumerate(registers[:-3]):
            machine.reg_write(register, 0x1122_3344_5566_7788 * (number + 1) & (1 << 64) - 1)
        for register, value in zip(registers[-3:], (STACK + PAGE, 0x202, 5), strict=True):
            machine.reg_write(register, value)
        machine.emu_start(start, AT + len(code) - len(END), count=100)
        left = [machine.reg_read(register) for register in registers]
        return [*left, machine.reg_read(names.UC_X86_REG_RIP), machine.mem_read(STACK, 2 * PAGE)]

    new = _patched(code, jumps)
    for start in _starts(instructions):
        assert run(new, start) == run(code, start), hex(start)


@settings(max_examples=scaled(600, 100), deadline=None)
@given(BODY, st.integers(1, 40), st.integers(0, 40))
def test_they_lead_to_their_hops(instructions: list[bytes], changed: int, shared: int) -> None:
    code, starts = b"".join(instructions) + END, _starts(instructions)
    room, until = AT + changed, AT + changed + shared
    jumps = _found(code, _hops(), room=room, until=until)
    new = _patched(code, jumps)
    assert [one.at for one in jumps[:1]] in ([], [AT])
    assert all(one.at in starts for one in jumps), "instructions"
    assert len({one.hop.at for one in jumps}) == len(jumps) != 1
    for one in jumps:
        end = dict(zip(starts, [*starts[1:], AT + len(code)], strict=True))[one.at]
        (insn,) = READER.disasm(new[one.at - AT :], one.at, 1)
        assert (insn.mnemonic, insn.size) == ("jmp", one.hop.size)
        assert int(insn.op_str, 16) == one.hop.at >= FLOOR
        assert len(one.hop.code) <= end - one.at and end <= room
        assert one.at + one.hop.size <= until


def _of(*texts: str) -> bytes:
    return b"".join(map(bytes.fromhex, texts)) + END


def test_the_push_between_stays() -> None:
    code = _of("55", "53", "4883ec08", "4889fb")
    assert not _hops().reachable(PUNS.forms(code, AT, 1))
    jumps = _found(code, _hops())
    assert [one.at - AT for one in jumps] == [0, 2]
    assert _patched(code, jumps)[1] == 0x53


def test_one_that_gives_way_may_need_another_to_do_so() -> None:
    code = _of("55", "53", "4889fb", "4883ec08", "8b4708", "90")
    jumps = _found(code, _hops())
    assert [one.at - AT for one in jumps] == [0, 2, 5]


@pytest.mark.parametrize(
    "code",
    [
        _of("31c0", "c3", "488d05c6e7f8a9"),
        _of("55", "e800000080", "4883ec08"),
        _of("eb00", "e9000000f0", "f4"),
        _of("55", "f30f1efa", "4883ec08"),
        _of("53", "f00fc18f00000080"),
    ],
    ids=["returns", "calls", "jumps", "landing pad", "lock"],
)
def test_only_what_control_comes_to_gives_way(code: bytes) -> None:
    for one in _found(code, _hops())[1:]:
        before = READER.disasm(code[: one.at - AT], AT)
        assert not any(insn.mnemonic in ("ret", "call", "jmp") for insn in before)
        assert code[one.at - AT : one.at - AT + 1] not in (b"\xf3", b"\xf0")


def test_no_more_segments_than_there_may_be() -> None:
    code = _of("55", "53", "4883ec08", "4889fb")
    assert not _found(code, _hops(0))
    assert _found(code, _hops(2))
