# SPDX-License-Identifier: MIT
"""Images of arm64 and riscv64, which are changed as they are: what each command writes, read by
its place, and taken back."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ftpatch.elf.relocations import Form
from tests.support.command import ftpatch
from tests.support.gnu import link_at
from tests.support.raw_images import END, POINTERS, RELOCATIONS, RISCV64, TEXT
from tests.support.raw_kernels import FORMS, NOPS, OPS, TABLE, RawKernel, raw_kernel

every_form = pytest.mark.parametrize("form", FORMS)
PLAIN = [name for name in FORMS if not name.endswith("relr-callops")]
"""Where literals need relocations, there must be a table for them to go to."""
plain_form = pytest.mark.parametrize("form", PLAIN)
CALLS = {
    "arm64": "mov x9, x30\nbl target",
    "riscv64": "0: auipc t0, %pcrel_hi(target)\njalr t0, %pcrel_lo(0b)(t0)",
}
NOP4 = bytes.fromhex("13000000")


def _put(folder: Path, made: RawKernel) -> Path:
    path = folder / "Image"
    path.write_bytes(bytes(made.data))
    return path


def _at(made: RawKernel, *names: str) -> list[int]:
    """File offsets of functions, in the order of the table."""
    return [at - made.base for at, name in made.sites.items() if name in names]


def _slot(made: RawKernel, function: int) -> int:
    """Where the record of a function is (offset)."""
    return TABLE + 8 * made.records.index(made.base + function - 8 * made.ops)


def _arch(form: str) -> str:
    return form.split("-")[0]


def _differing(old: bytes, new: bytes) -> list[int]:
    return [at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]


def _entries(made: RawKernel, data: bytes) -> dict[int, tuple[int, int]]:
    """.rela.dyn: place -> (info, addend), of what is not NONE."""
    (_, start, size), *_ = made.tables
    rows = struct.iter_unpack("<QQQ", data[start : start + size])
    return {place: (info, addend) for place, info, addend in rows if info}


@plain_form
def test_enable(form: str, tmp_path: Path) -> None:
    made = raw_kernel(form, nulls=3)
    path, output = _put(tmp_path, made), tmp_path / "Image.ftpatch"
    result = ftpatch("enable", "--json", path, "-f", "vfs_*").only
    assert (result["changed"], result["dropped"], result["failed"]) == (2, 2, [])
    old, new = bytes(made.data), output.read_bytes()
    assert path.read_bytes() == old and len(new) > len(old)
    caller = made.base + next(at for name, at in _helpers(made) if name == "ftrace_caller")
    functions = _at(made, "vfs_read", "vfs_write")
    for at in functions:
        (code,) = link_at(_arch(form), [(made.base + at, CALLS[_arch(form)], caller)])
        assert new[at : at + 8] == code
    # The records are null, and no relocation fills them; and nothing else is different.
    slots = [_slot(made, at) for at in functions]
    allowed = {at + i for at in functions for i in range(-8 * made.ops, 8)}
    allowed |= {at + i for at in slots for i in range(8)} if made.form != Form.RELA else set()
    if made.form == Form.NONE:
        tables = range(0)
    else:
        (_, start, size), *_ = made.tables
        tables = range(start, start + size)
    assert {at for at in _differing(old, new) if at not in tables} <= allowed
    if made.form == Form.RELA:
        before, after = _entries(made, old), _entries(made, new)
        gone = {made.base + slot for slot in slots}
        kept = {place: entry for place, entry in before.items() if place not in gone}
        literals = {at - 8 + made.base for at in functions} if made.ops else set()
        assert {p: e for p, e in after.items() if p not in literals} == kept
        assert {after[at] for at in literals} <= {(1027, made.base + OPS)}
    else:
        assert [new[slot : slot + 8] for slot in slots] == [bytes(8)] * 2
    if made.ops:
        ops = (made.base + OPS).to_bytes(8, "little")
        assert [new[at - 8 : at] for at in functions] == [ops] * 2
    row = ftpatch("status", "--json", output).only
    assert (row["container"], row["dropped"], row["null"]) == ("Image", 2, 6)
    assert row["targets"] == {"ftrace_caller": 2}
    assert [row["invariant"] for row in ftpatch("check", "--json", output).json] == [None], "a note"


def _helpers(made: RawKernel) -> list[tuple[str, int]]:
    return [(name, at - made.base) for at, _, name in made.symbols]


@plain_form
@pytest.mark.parametrize("bounds", [True, False], ids=["", "unbounded"])
def test_one_after_the_other(form: str, bounds: bool, tmp_path: Path) -> None:
    """Each sees what was done before it, and undo takes them back one by one, or all at once."""
    path = _put(tmp_path, raw_kernel(form, bounds=bounds, nulls=3))
    commands: list[tuple[list[str], tuple[int, int, int], dict[str, int]]] = [
        (["enable", "-f", "do_*", "-n", "do_exit"], (300, 300, 0), {"nop": 6, "call": 300}),
        (["disable", "-f", "do_work_1*"], (111, 0, 111), {"nop": 117, "call": 189}),
        (["enable", "-f", "vfs_read", "--keep-records"], (1, 0, 0), {"nop": 116, "call": 190}),
        (["disable"], (190, 0, 189), {"nop": 306, "call": 0}),
        (["enable"], (306, 306, 0), {"nop": 0, "call": 306}),
    ]
    states = [path.read_bytes()]
    for words, counts, expected in commands:
        row = ftpatch(*words, "--json", "--in-place", path).only
        assert (row["changed"], row["dropped"], row["restored"]) == counts, words
        assert ftpatch("status", "--json", path).only["states"] == expected | {"unexpected": 0}
        states.append(path.read_bytes())
        diff = ftpatch("diff", "--json", path).json
        assert {found["kind"] for found in diff} <= {"site", "record", "literal", "relocation"}
    everything = tmp_path / "all"
    assert ftpatch("undo", "--all", path, "-o", everything).code == 0
    assert everything.read_bytes() == states[0]
    for before in reversed(states[:-1]):
        assert ftpatch("undo", path).code == 0
        assert path.read_bytes() == before
    assert "no journal" in ftpatch("undo", path).err


@every_form
def test_disable_of_what_is_compiled_as_nops(form: str, tmp_path: Path) -> None:
    """Nothing to do: a plain copy without a journal."""
    path = _put(tmp_path, raw_kernel(form))
    row = ftpatch("disable", "--json", path).only
    assert (row["changed"], row["unchanged"], row["dropped"]) == (0, 306, 0)
    assert (tmp_path / "Image.ftpatch").read_bytes() == path.read_bytes()
    assert ftpatch("diff", path).out == "nothing differs\n"


@plain_form
def test_back_to_nops(form: str, tmp_path: Path) -> None:
    """What is disabled again holds what the kernel would write, and has its record."""
    made = raw_kernel(form, nulls=1)
    path = _put(tmp_path, made)
    assert ftpatch("enable", "--in-place", path, "-f", "ksys_*").code == 0
    assert ftpatch("disable", "--in-place", path, "-f", "ksys_*").code == 0
    (at,) = _at(made, "ksys_dup3")
    data = path.read_bytes()
    assert data[at : at + 8] == (NOP4 * 2 if made.magic == RISCV64 else NOPS[made.magic])
    changed = {d for d in _differing(bytes(made.data), data) if not at <= d < at + 8}
    if made.ops:  # the literal and its relocation stay: ftrace_init fills them anyway
        changed -= set(range(at - 8, at)) | set(range(RELOCATIONS, len(made.data)))
    if made.form == Form.RELA:  # another entry may carry the record
        assert _entries(made, data).items() >= _entries(made, bytes(made.data)).items()
        changed -= set(range(RELOCATIONS, len(made.data)))
    assert not changed
    assert ftpatch("status", "--json", path).only["dropped"] == 0


def _pe(made: RawKernel, signature: bytes) -> bytes:
    """The same as a PE file of two parts, signed."""
    data = made.data
    struct.pack_into("<I", data, 0x3C, 0x40)
    struct.pack_into("<4sHH12xHH", data, 0x40, b"PE\0\0", 0xAA64, 2, 160, 0)
    for row, (start, stop) in enumerate([(TEXT, POINTERS), (POINTERS, len(data))]):
        at = 0x40 + 24 + 160 + 40 * row
        struct.pack_into("<8sIIII", data, at, b".text", 0, start, stop - start, start)
    return bytes(data) + signature


def test_a_signed_image(tmp_path: Path) -> None:
    """The signature stays where it is; it is no part of the kernel. (Firmware that asks for it
    refuses what was changed.)"""
    made = raw_kernel("arm64-relr", nulls=2)
    path = tmp_path / "Image"
    path.write_bytes(_pe(made, b"signature " * 147))
    before = path.read_bytes()
    assert ftpatch("status", "--json", path).only["null"] == 4
    assert ftpatch("enable", "--in-place", path, "-f", "vfs_*").code == 0
    assert path.read_bytes()[END : len(before)] == before[END:]
    kinds = [row["kind"] for row in ftpatch("diff", "--json", path).json]
    assert sorted(kinds) == ["record", "record", "site", "site"]
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == before


@plain_form
@pytest.mark.parametrize("part", ["callee", "opcode"])
def test_what_another_tool_changed(form: str, part: str, tmp_path: Path) -> None:
    """Neither undone nor changed further, and nothing is written; check tells."""
    made = raw_kernel(form, nulls=1)
    path = _put(tmp_path, made)
    assert ftpatch("enable", "--in-place", path, "-f", "vfs_*").code == 0
    data = bytearray(path.read_bytes())
    (at,) = _at(made, "vfs_read")
    data[at + (7 if (part == "opcode") == form.startswith("arm64") else 4)] ^= 0xF0
    path.write_bytes(data)
    for words in (["undo"], ["enable", "--in-place"], ["disable", "--in-place"]):
        result: Any = ftpatch(*words, path)
        assert result.code == 1 and result.err.startswith("ftpatch: ")
        assert path.read_bytes() == data
    assert ftpatch("check", path).code == 1
