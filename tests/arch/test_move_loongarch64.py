# SPDX-License-Identifier: MIT
"""loongarch64: how moved instructions and detours read, by GNU as, and what they do, by QEMU."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch.detour import detour_of
from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Why, mover_of
from tests.kernels.loongarch64 import instructions
from tests.support.cross_root import cross_folder, use_cross_root
from tests.support.gnu import link_at, program, runner
from tests.support.sampling import scaled

ARCH = "loongarch64"
MOVER = mover_of(ARCH)
AT, TO, TARGET = 0x1_2000_1000, 0x1_2046_2000, 0x1_2000_4F34
OPPOSITES = {"beq": "bne", "blt": "bge", "bltu": "bgeu", "beqz": "bnez", "bceqz": "bcnez"}
OPPOSITES |= {b: a for a, b in OPPOSITES.items()}
WITH = {"beqz": "$s0, ", "bnez": "$s0, ", "bceqz": "$fcc3, ", "bcnez": "$fcc3, "}
TWO = "$a0, $s3, "


def _address(register: str, value: str) -> str:
    """``value`` is relative to the pair."""
    high = f"(({value}) + 0x800) >> 12"
    return (
        f"pcaddu12i {register}, {high}; addi.d {register}, {register}, ({value}) - ({high} << 12)"
    )


FORMS = [
    # at the site; elsewhere, where {back}, {target}, ... are relative to the slot
    *((text, f"{text}; b {{back}} - 4") for text in (
        "addi.d $sp, $sp, -32", "st.d $ra, $sp, 24", "move $a0, $a1", "nop", "lu12i.w $a0, 4",
        "ldptr.d $a0, $sp, 64", "stptr.w $a0, $a1, -8", "amadd_db.d $a0, $a1, $a2", "syscall 0",
        "dbar 0", "fld.d $fa0, $sp, 8", "vld $vr0, $sp, 0", "xvst $xr1, $sp, 32",
        "rdtime.d $a0, $zero", "pcaddi $zero, 5", "pcaddu12i $zero, 1", "fadd.d $fa0, $fa1, $fa2",
    )),
    *((text, text) for text in ("ret", "jr $t1", "jirl $zero, $t2, 16")),
    ("b target", "b {target}"),
    ("bl target", _address("$ra", "{back}") + "; b {target} - 8"),
    ("jirl $ra, $t2, 0", _address("$ra", "{back}") + "; jr $t2"),
    ("jirl $t0, $s3, -8", _address("$t0", "{back}") + "; jirl $zero, $s3, -8"),
    *((f"{a} {WITH.get(a, TWO)}target",
       f"{b} {WITH.get(a, TWO)}8; b {{target}} - 4; b {{back}} - 8") for a, b in OPPOSITES.items()),
    ("pcaddi $a0, 0x1234", _address("$a0", "{at} + 0x1234 * 4") + "; b {back} - 8"),
    ("pcaddi $a0, -2", _address("$a0", "{at} - 8") + "; b {back} - 8"),
    ("pcaddu12i $t3, -3", _address("$t3", "{at} - 0x3000") + "; b {back} - 8"),
    ("pcaddu18i $ra, 5", _address("$ra", "{at} + (5 << 18)") + "; b {back} - 8"),
    ("pcalau12i $t3, 7", "pcalau12i $t3, 7 - {pages}; b {back} - 4"),
]  # fmt: skip
REFUSED = [
    ("break 0", Why.TRAP),
    ("dbcl 0", Why.TRAP),
    (".word 0", Why.UNKNOWN),
    (".word 0xffffffff", Why.UNKNOWN),
    ("jirl $ra, $ra, 0", Why.LINK),
    *((text, Why.JOINED) for text in (
        "ll.w $a0, $a1, 0", "ll.d $a0, $a1, 8", "llacq.w $a0, $a1", "llacq.d $a0, $a1",
        "sc.w $a0, $a1, 0", "sc.d $a0, $a1, 8", "screl.w $a0, $a1", "screl.d $a0, $a1",
        "sc.q $a0, $a1, $a2",
    )),
    (".word 0x48000200", Why.FORM),  # jiscr0
    ("b 4; nop", Why.INSIDE),
    ("ret; nop", Why.ENDS),
    ("bl target; nop", Why.RETURNS),
    ("jirl $ra, $t0, 0; nop", Why.RETURNS),
    ("nop", Why.SHORT),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    use_cross_root(ARCH)


def _assembled(*texts: str, at: int = AT) -> list[bytes]:
    return link_at(ARCH, [(at + 128 * i, text, TARGET) for i, text in enumerate(texts)])


def test_every_form_reads_as_gnu_as_has_it() -> None:
    originals = _assembled(*(text for text, _ in FORMS))
    wanted = []
    for i, ((_, slot), code) in enumerate(zip(FORMS, originals, strict=True)):
        site, to = AT + 128 * i, TO + 128 * i
        held = {"back": site + len(code), "at": site, "target": TARGET}
        names = {name: str(value - to) for name, value in held.items()}
        wanted.append(slot.format(**names, pages=(to >> 12) - (site >> 12)))
    for i, (code, expected) in enumerate(zip(originals, _assembled(*wanted, at=TO), strict=True)):
        moved = MOVER.move(code + b"\xff" * 16, AT + 128 * i, TO + 128 * i, len(code))
        assert moved.size == len(code)
        assert moved.code == expected, FORMS[i]
        far = MOVER.move(code, AT + 128 * i, TO + 0x2_0000, 1)
        assert len(far.code) == len(moved.code), "the length does not depend on the place"


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_cannot_be_moved(text: str, why: Why) -> None:
    (code,) = _assembled(text)
    with pytest.raises(Immovable) as caught:
        MOVER.move(code, AT, TO, 8 if ";" in text or why is Why.SHORT else 1)
    assert caught.value.why == why


def test_what_is_out_of_reach() -> None:
    far = 1 << 27
    for to in (AT + far - 4, AT - far, AT + 4):
        assert MOVER.reaches(AT, to)
        (insn,) = disassemble(ARCH, MOVER.jump(AT, to), AT)
        assert insn.target == to and insn.size == 4
    for to in (AT + far, AT - far - 4):
        assert not MOVER.reaches(AT, to)
        with pytest.raises(Immovable, match="out of range"):
            MOVER.jump(AT, to)
    for code in _assembled("pcaddu18i $ra, 0x4000", "pcaddu12i $a0, 0x7ffff", "pcalau12i $a0, -1"):
        with pytest.raises(Immovable, match="out of range"):
            MOVER.move(code, AT, AT - (1 << 31), 4) and MOVER.move(code, AT, AT + (1 << 31), 4)


def test_what_nothing_may_come_between() -> None:
    ll, sc, nop, ret = _assembled("ll.w $a0, $a1, 0", "sc.w $a2, $a1, 0", "nop", "ret")
    assert MOVER.joined(ll) and MOVER.joined(nop + ll + nop + nop)
    assert not MOVER.joined(ll + nop + sc)
    assert not MOVER.joined(ll + ret + nop)
    assert not MOVER.joined(nop) and not MOVER.joined(b"")
    assert not MOVER.joined(ll + nop * 32), "no such loop is that long"


@pytest.mark.parametrize("distance", [-0x8_0000, -16, 0x40, 0x700_0000])
def test_detours(distance: int) -> None:
    near = detour_of(ARCH)
    for place in (0, 1, 0x7FF, 0x800, 0xFFFF, 0x1234_5FFF):
        around = (
            "addi.d $sp, $sp, -16; st.d $ra, $sp, 0; st.d $t0, $sp, 8; "
            f"lu12i.w $t0, {place >> 12}; ori $t0, $t0, {place & 0xFFF}; {{}}; "
            "ld.d $ra, $sp, 0; ld.d $t0, $sp, 8; addi.d $sp, $sp, 16"
        )
        to = distance - 20  # from the call on
        high = (to + 0x800) >> 12
        load = f"pcaddu12i $ra, {high}; ld.d $ra, $ra, {to - (high << 12)}; jirl $ra, $ra, 0"
        for detour, text in ((near, "bl target"), (near.far, load)):
            (wanted,) = link_at(ARCH, [(AT, around.format(text), AT + distance)])
            code = detour.make(AT, place, AT + distance)
            assert len(code) == detour.size and code == wanted


def test_what_it_reads_of_libc_is_what_objdump_prints() -> None:
    """All branches and their targets; of the others what it knows; nothing that it takes for
    undefined is an instruction."""
    code = (cross_folder(ARCH) / "lib/libc.so.6").read_bytes()[0x2_0000:0x12_0000]
    chance = random.Random(14)
    starts = [chance.randrange(len(code) // 4) * 4 for _ in range(scaled(6000, 1500))]
    held = b"".join(code[at : at + 4] for at in starts)
    held += b"".join(chance.randbytes(3) + bytes([n % 0x40 + 0x40]) for n in range(len(starts)))
    held += chance.randbytes(4 * len(starts))
    branches = 0
    for at, (ours, theirs) in enumerate(
        zip(disassemble(ARCH, held, 0), instructions(held), strict=True)
    ):
        word = held[4 * at : 4 * at + 4]
        *first, last = theirs[1].split(", ")
        if ours.target is not None:
            branches += 1
            assert (ours.mnemonic, ours.target) == (theirs[0], (4 * at + int(last, 0)) % (1 << 64))
            assert ours.operands.split(", ")[:-1] == first
        elif ours.mnemonic != ".word":
            assert (ours.mnemonic, ours.operands) == theirs
        else:
            assert theirs[0] not in {*OPPOSITES, "b", "bl"}
        try:
            MOVER.move(word, AT, TO, 4)
        except Immovable as error:
            if error.why is Why.UNKNOWN:
                assert theirs[0] == ".word"
    assert branches > len(starts) // 4


ALONE = [
    *(f"{name} {registers}, target" for name in ("beq", "bne", "blt", "bge", "bltu", "bgeu")
      for registers in ("$a0, $a1", "$s2, $zero", "$ra, $t0", "$a3, $a3")),
    *(f"{name} {one}, target" for name in ("beqz", "bnez") for one in ("$a0", "$t8")),
    *(f"{name} {one}, target" for name in ("bceqz", "bcnez") for one in ("$fcc0", "$fcc3")),
    "b target", "bl target", "bl 4", "jr $t5", "jirl $ra, $t5, 0", "jirl $t0, $s8, 16",
    "jirl $a0, $t5, -16", "pcaddi $a0, 0x1234", "pcaddi $ra, -2", "pcaddi $zero, 1",
    "pcaddu12i $ra, -1", "pcaddu12i $s0, 0x1234", "pcaddu18i $t1, 3", "pcaddu18i $ra, -0x100",
    "pcalau12i $a0, 0", "pcalau12i $fp, -5", "pcalau12i $t8, 0x7000", "addi.d $sp, $sp, -64",
    "move $a0, $a1", "lu12i.w $a0, 0x12345", "mul.d $a0, $a1, $a2", "nop",
]  # fmt: skip
FIELD, SLOTS, LINE = 0x4000, 0x8000, 64
"""Of code that tells where it was reached, of slots; how far these are apart (bytes)."""
STATE, FOUND, CAME, NEXT = 1024, 256, 512, 520
"""Bytes of a state; in it: registers as they are found, the place where that was, what is next."""
HELD = [n for n in range(2, 32) if n != 21]
"""Registers of forms beside ra; r21 points to the state."""
STOP = f"st.d $ra, $r21, {FOUND + 8}; pcaddi $ra, 0; b dump"
POINTERS = (17, 31)
"""Those that forms jump through: $t5, $s8."""
RUNS = f"""
    .macro go to, state
    la.pcrel $r21, state\\state
    la.pcrel $t0, 9f
    st.d $t0, $r21, {NEXT}
    ld.d $t0, $r21, 0
    movgr2cf $fcc0, $t0
    srli.d $t0, $t0, 1
    movgr2cf $fcc3, $t0
    .irp n, 1, {", ".join(map(str, HELD))}
    ld.d $r\\n, $r21, 8 * \\n
    .endr
    b base + \\to
9:
    .endm
    .text
    .globl _start
_start: b first
dump:
    st.d $ra, $r21, {CAME}
    .irp n, {", ".join(map(str, HELD))}
    st.d $r\\n, $r21, {FOUND} + 8 * \\n
    .endr
    ori $a0, $zero, 1
    addi.d $a1, $r21, {FOUND}
    ori $a2, $zero, {CAME + 8 - FOUND}
    ori $a7, $zero, 64                  # write
    syscall 0
    ld.d $ra, $r21, {NEXT}
    jr $ra
first:
"""
ENDS = """
    move $a0, $zero
    ori $a7, $zero, 93                  # exit
    syscall 0
    .p2align 16
base:
"""


def _state(chance: random.Random) -> list[str]:
    """Flags and registers of a state: some are equal, some point to code, some are large."""
    words = []
    for n in range(STATE // 8):
        pointer = f"base + {FIELD + 16 * chance.randrange(4, 12)}"
        others = [pointer, str(chance.randrange(2)), str(chance.getrandbits(64))]
        words.append(pointer if n in POINTERS else chance.choice(others))
    return [str(chance.randrange(4)), *words[1:]]


def test_moved_instructions_do_what_they_did(tmp_path: Path) -> None:
    """Each form from several states, at its site and elsewhere: it comes to the same place, with
    the same registers."""
    chance, at, each = random.Random(5), 0x1_2000_0000, scaled(12, 4)
    pieces = [(at + LINE * n, text, at + FIELD + 64) for n, text in enumerate(ALONE)]
    codes = link_at(ARCH, pieces)
    text, states, runs, slot = "", "", 0, SLOTS
    places = [(FIELD + 16 * n, STOP) for n in range(16)]
    for (site, _, _), code in zip(pieces, codes, strict=True):
        places.append((site - at, f"{_as_words(code)}; {STOP}"))
        for _ in range(each):
            moved = MOVER.move(code, site, at + slot, 4)
            places.append((slot, _as_words(moved.code)))
            text += f"go {site - at}, {runs}\ngo {slot}, {runs + 1}\n"
            state = f".dword {', '.join(_state(chance))}\n"
            states += f"state{runs}: {state}state{runs + 1}: {state}"
            runs, slot = runs + 2, slot + LINE
    laid = "".join(f".org base + {place}\n{code}\n" for place, code in sorted(places))
    path = tmp_path / "runs"
    program(ARCH, f"{RUNS}{text}{ENDS}{laid}.data\n{states}", path)
    said = subprocess.run([*runner(ARCH), str(path)], capture_output=True, check=True).stdout
    found = np.frombuffer(said, "<u8").reshape(-1, (CAME + 8 - FOUND) // 8)
    assert len(found) == runs
    for n, (wanted, got) in enumerate(zip(found[::2], found[1::2], strict=True)):
        assert wanted.tolist() == got.tolist(), ALONE[n // each]
    came = found[:, -1].reshape(len(ALONE), -1)
    assert sum(len(set(row.tolist())) == 2 for row in came) > 12, "branches go both ways"


def _as_words(code: bytes) -> str:
    return f".word {', '.join(map(hex, np.frombuffer(code, '<u4').tolist()))}"
