# SPDX-License-Identifier: MIT
"""What a kernel may do to its text, by its tables, and the same in another place, or against what
its data says: that is a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.cores import BASE, FENCES, NOP5, PLACES, Kernel
from tests.support.images import call32

pytest.importorskip("drgn")
STUB, CALLER, PANIC, THUNK = (BASE + at for at in (16, 24, 40, 48))
BRANCH, RETURN = PLACES["vfs_read"] + 16, PLACES["do_exit"] + 16
CALL, LOCK, WORD = PLACES["schedule"] + 16, PLACES["schedule"] + 32, PLACES["ksys_dup3"] + 16
LFENCE = bytes.fromhex("0faee8")
RETURNS = bytes.fromhex("c3cccccccc")  # ret; int3...
TO_BRANCH = bytes.fromhex("e91b000000")  # jmp .+32: vfs_read+48
ALL_FENCES = dict.fromkeys(FENCES, LFENCE)
BIAS = 0x1A20_0000
READ = PLACES["vfs_read"]


def _jump(at: int, target: int) -> bytes:
    return b"\xe9" + call32(at, target)[1:]


def _word(value: int) -> bytes:
    return (value & 0xFFFF_FFFF).to_bytes(4, "little")


def _found(tmp_path: Path, changes: dict[int, bytes], **how: int) -> list[dict[str, Any]]:
    (tmp_path / "vmlinux").write_bytes(Kernel().file())
    (tmp_path / "core").write_bytes(Kernel().core(changes, **how))
    done = ftpatch("check", tmp_path / "vmlinux", "--core", tmp_path / "core", "--json")
    rows = [row for row in done.json if row["invariant"]]
    assert (done.code, done.err) == (bool(rows), "")
    return rows


ALLOWED: dict[str, tuple[dict[int, bytes], dict[str, int]]] = {
    "sites-alone": ({}, {}),
    "key-on": ({BRANCH: TO_BRANCH}, {"key": 1}),
    "key-changing": ({BRANCH: TO_BRANCH}, {"key": -1}),
    "key-not-changed-yet": ({}, {"key": -1}),
    "feature-there": (ALL_FENCES, {}),
    "return": ({RETURN: RETURNS}, {}),
    "another-thunk": ({RETURN: _jump(RETURN, STUB)}, {"thunk": STUB}),
    "static-call": ({CALL: call32(CALL, PANIC)}, {"called": PANIC}),
    "one-processor": ({LOCK: b"\x3e"}, {}),
    "traced": ({READ: call32(READ, CALLER)}, {}),
    "moved": ({WORD: _word(READ + BIAS)}, {"bias": BIAS}),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_its_tables_allow(tmp_path: Path, name: str) -> None:
    changes, how = ALLOWED[name]
    assert _found(tmp_path, changes, **how) == []


FOUND: dict[str, tuple[dict[int, bytes], dict[str, int], int]] = {
    "padding": ({READ + 7: b"\x90"}, {}, READ + 7),
    "branch-with-the-key-off": ({BRANCH: TO_BRANCH}, {}, BRANCH),
    "no-branch-with-the-key-on": ({}, {"key": 1}, BRANCH),
    "branch-elsewhere": ({BRANCH: _jump(BRANCH, STUB)}, {"key": 1}, BRANCH),
    "feature-in-one-place": ({FENCES[1]: LFENCE}, {}, FENCES[1]),
    "feature-not-in-one-place": ({FENCES[0]: LFENCE, FENCES[2]: LFENCE}, {}, FENCES[1]),
    "no-replacement": (ALL_FENCES | {FENCES[1]: b"\x90\x90\x90"}, {}, FENCES[1]),
    "return-elsewhere": ({RETURN: _jump(RETURN, STUB)}, {}, RETURN),
    "static-call-elsewhere": ({CALL: call32(CALL, PANIC)}, {}, CALL),
    "lock-as-nop": ({LOCK: b"\x90"}, {}, LOCK),
    "breakpoint-of-nobody": ({BRANCH: b"\xcc"}, {}, BRANCH),
    "moved-by-another-distance": ({WORD: _word(READ + BIAS + 0x1000)}, {"bias": BIAS}, WORD),
    "moved-though-it-was-not": ({WORD: _word(READ + BIAS)}, {}, WORD),
    "hook": ({READ: _jump(READ, PANIC)}, {}, READ),
}
"""Bytes in memory, the kernel's data, and where the finding begins."""


@pytest.mark.parametrize("name", FOUND)
def test_what_they_do_not(tmp_path: Path, name: str) -> None:
    changes, how, at = FOUND[name]
    (finding, *more) = _found(tmp_path, changes, **how)
    assert not more and finding["invariant"] == "text-explained"
    begin, bias = int(finding["ip"], 16), how.get("bias", 0)
    # The finding begins at the first byte that differs, which is in the word, or the instruction.
    assert at + bias <= begin < at + bias + 5


@pytest.mark.parametrize("target", [PANIC, STUB, BASE + 0x4000_0000])
def test_a_call_of_what_nobody_has_registered(tmp_path: Path, target: int) -> None:
    (finding,) = _found(tmp_path, {READ: call32(READ, target)})
    assert (finding["invariant"], int(finding["ip"], 16)) == ("callee-known", READ)
    assert NOP5.hex(":") not in finding["bug"]
    assert call32(READ, target).hex(":") in finding["bug"]
