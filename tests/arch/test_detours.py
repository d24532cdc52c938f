# SPDX-License-Identifier: MIT
"""Detours: GNU as makes the same of their assembly; and what a signal's frame holds: as the C
library's headers have it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ftpatch.arch import feature
from ftpatch.arch.detour import detour_of
from ftpatch.arch.frame_registers import FrameRegisters

pytestmark = pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-gcc") is None, reason="needs gcc for arm64"
)

AT = 0x40_1000
PLACES = (0, 1, 0xFFFF, 0x1_0000, 0x1234_5678)
DISTANCES = (-0x8_0000, -16, 0x40, 0xF_0000)
"""Bytes from a detour to its callee, or to what leads there."""
CALLS = {"near": "bl .+{to}", "far": "ldr x30, .+{to}; blr x30"}
DETOUR = """stp x30, x17, [sp, -16]!; movz x17, {low}; movk x17, {high}, lsl 16
{call}
ldp x30, x17, [sp], 16
"""
BEFORE = 12
"""Bytes of a detour before its call."""
TOOLS = "aarch64-linux-gnu-"
FRAME = r"""
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>
unsigned long words[] = {
    sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.regs),
    sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.sp),
    sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.pc),
};
"""


def _assembled(folder: Path, text: str) -> bytes:
    """GNU as's bytes."""
    made, code = folder / "code.o", folder / "code"
    subprocess.run([f"{TOOLS}as", "-o", made], input=text.encode(), check=True)
    subprocess.run([f"{TOOLS}objcopy", "-O", "binary", "-j", ".text", made, code], check=True)
    return code.read_bytes()


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("reach", CALLS)
def test_those_of_arm64_are_as_gnu_as_makes_them(tmp_path: Path, reach: str, distance: int) -> None:
    near = detour_of("arm64")
    detour = near.far if reach == "far" else near
    for place in PLACES:
        call = CALLS[reach].format(to=distance - BEFORE)
        text = DETOUR.format(low=place & 0xFFFF, high=place >> 16, call=call)
        code = detour.make(AT, place, AT + distance)
        assert len(code) == detour.size and code == _assembled(tmp_path, text)
    assert near.far.entry(AT) == AT.to_bytes(8, "little")


def test_a_frame_of_arm64_holds_the_registers(tmp_path: Path) -> None:
    known: FrameRegisters = feature("arm64", "frame_registers")
    (tmp_path / "frame.c").write_text(FRAME)
    made, data = tmp_path / "frame.o", tmp_path / "data"
    subprocess.run([f"{TOOLS}gcc", "-c", tmp_path / "frame.c", "-o", made], check=True)
    copy: list[str | Path] = [f"{TOOLS}objcopy", "-O", "binary", "-j", ".data", made, data]
    subprocess.run(copy, check=True)
    held = data.read_bytes()
    words = [int.from_bytes(held[at : at + 8], "little") for at in range(0, len(held), 8)]
    assert words == [known.signalled[0], known.signalled[known.stack], known.ip]
    assert known.restorer == _assembled(tmp_path, "mov x8, 139; svc 0\n")
