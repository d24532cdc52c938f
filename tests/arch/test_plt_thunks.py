# SPDX-License-Identifier: MIT
"""Thunks of PLT entries, as GNU as and ld make them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.arch import supporting
from ftpatch.arch.plt_thunks import plt_thunks_of
from tests.support.gnu import link_at

ENTRY = {
    "x86_64": "jmp *target(%rip)",
    "arm64": "adrp x16, target; ldr x17, [x16, #:lo12:target]; add x16, x16, #:lo12:target; br x17",
}
SIGNED = ENTRY["arm64"].replace("br", "autia1716; br")
CALL = {"x86_64": "call target", "arm64": "mov x9, x30; bl target"}
JUMP = {"x86_64": "jmp target; int3", "arm64": "b target"}
BEHIND = {"x86_64": (11, 5), "arm64": (28, 8)}
"""Of a thunk, where the distance is; and the address from which it counts."""
IP = {"x86_64": 5, "arm64": 4}
"""Of a site that is a jump, its size."""
places = st.integers(1 << 9, (1 << 22) - 1).map(lambda number: number * 8)


def _column(value: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([value], np.int64)


@pytest.mark.parametrize("form", ["x86_64", "arm64", "arm64-signed"])
@given(jump=places, slot=places, thunk=places, caller=places)
def test_bytes_are_those_of_gnu(form: str, jump: int, slot: int, thunk: int, caller: int) -> None:
    arch = form.partition("-")[0]
    entry = SIGNED if "-" in form else ENTRY[arch]
    jump, thunk = jump + (2 << 25), thunk + (3 << 25)
    thunks = plt_thunks_of(arch)
    at, behind = thunk + len(_call(arch, thunk, caller)), BEHIND[arch]
    filler = "nop; " if arch == "arm64" and "-" not in form else ""
    old, new, called, jumps = link_at(
        arch,
        [
            (jump, entry, slot),
            (jump + 64, JUMP[arch], thunk + 64),
            (thunk, CALL[arch], caller),
            (at, entry.replace("br", f"{filler}br"), slot),
        ],
    )
    found = np.frombuffer(old.ljust(thunks.width, b"\0"), np.uint8).reshape(1, -1)
    expected, width = thunks.old(_column(jump), _column(slot), found)
    assert expected[0].tobytes()[: int(width[0])] == old
    changed = thunks.new(expected, _column(jump), _column(thunk))[0].tobytes()[: int(width[0])]
    assert changed == new + old[len(new) :]
    made = thunks.make(expected, _column(jump), _column(slot), _column(thunk), caller)[0].tobytes()
    assert len(made) == thunks.size and made.startswith(called + jumps)
    distance = int.from_bytes(made[behind[0] : behind[0] + 4], "little", signed=True)
    assert thunk + behind[1] + distance == jump + IP[arch]


def _call(arch: str, thunk: int, caller: int) -> bytes:
    (code,) = link_at(arch, [(thunk, CALL[arch], caller)])
    return code


def test_those_are_all() -> None:
    assert supporting("plt_thunks") == sorted(ENTRY)
