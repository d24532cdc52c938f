# SPDX-License-Identifier: MIT
"""Punned jumps: Capstone reads them, with the bytes behind them, as jumps to their targets."""

from __future__ import annotations

import capstone
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.arch.puns import Pun, puns_of

PUNS = puns_of("x86_64")
AT = 0x40_1000
READER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
SIZES = st.integers(1, 15)
CODE = st.binary(min_size=32, max_size=32)


def _target(code: bytes, at: int, size: int) -> int:
    """Where the jump at the start of ``code`` goes, of which all ``size`` bytes are its own."""
    (insn,) = READER.disasm(code, at, 1)
    assert (insn.mnemonic, insn.size) == ("jmp", size), insn
    return int(insn.op_str, 16)


def _written(pun: Pun, code: bytes, to: int, size: int) -> bytes:
    new = PUNS.encode(pun, to, size)
    assert len(new) <= size, "nothing of the next instruction"
    return new + code[len(new) :]


@given(CODE, SIZES, st.data())
def test_they_lead_to_all_of_their_targets(code: bytes, size: int, data: st.DataObject) -> None:
    for pun in PUNS.forms(code, AT, size):
        to = data.draw(st.integers(pun.low, pun.high - 1))
        for target in (pun.low, to, pun.high - 1):
            code_of = _written(pun, code, target, size)
            assert _target(code_of, AT, pun.size) == target % (1 << 64)
            assert code_of[size:] == code[size:]


@given(CODE, SIZES)
def test_the_next_targets_need_the_next_instruction(code: bytes, size: int) -> None:
    for pun in PUNS.forms(code, AT, size):
        for beyond in (pun.low - 1, pun.high):
            if -(1 << 31) <= beyond - AT - pun.size < 1 << 31:
                assert _target(_written(pun, code, beyond, size), AT, pun.size) != beyond


def test_each_byte_of_the_instruction_is_a_choice() -> None:
    code = bytes.fromhex("55 4889e5 4157 4156 4155 4154 53 4883ec18")
    assert [(len(pun.head), pun.high - pun.low) for pun in PUNS.forms(code, AT, 1)] == [(1, 1)]
    three = PUNS.forms(code[1:], AT, 3)
    assert [pun.high - pun.low for pun in three] == [1 << 16, 1 << 8, 1]
    assert PUNS.forms(code[1:], AT, 5)[0].high == AT + 5 + (1 << 31)


def test_a_locked_instruction_has_two_beginnings() -> None:
    assert not PUNS.forms(bytes.fromhex("f0 0fb10f") + bytes(16), AT, 4)


def test_code_that_ends_has_no_more_bytes_to_share() -> None:
    assert not PUNS.forms(b"\xc3\x90\x90", AT, 1)
