# SPDX-License-Identifier: MIT
"""A user's stub that takes registers: what it sees and makes of them, by gdb."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.regs_gdb import registers_by_gdb
from tests.support.tracer_programs import REGISTERED, emulator, traced
from tests.support.user_stubs import STUBS, compiled_program, compiled_stub, functions_of, shown

every_arch = pytest.mark.parametrize("arch", REGISTERED)
NAMES = {
    "x86_64": {
        **{f"r{name}": name for name in ("ax", "cx", "dx", "bx", "sp", "bp", "si", "di")},
        **{f"r{n}": f"r{n}" for n in range(8, 16)},
        "eflags": "flags",
        "rip": "ip",
    },
    "i386": {
        **{f"e{name}": name for name in ("ax", "cx", "dx", "bx", "sp", "bp", "si", "di")},
        "eflags": "flags",
        "eip": "ip",
    },
    "arm64": {**{f"x{n}": str(n) for n in range(31)}, "sp": "sp", "cpsr": "pstate", "pc": "pc"},
}
"""The registers by gdb's names, and their members of struct ftrace_regs."""
FLAGS = {"eflags": 0x8D5, "cpsr": 0xF000_0000}
"""Those that code sees: CF, PF, AF, ZF, SF, OF; NZCV."""


@every_arch
def test_registers_are_what_gdb_sees(arch: str, tmp_path: Path) -> None:
    """At entries and at returns, of calls from the program and from libc."""
    if shutil.which("gdb-multiarch" if emulator(arch) else "gdb") is None:
        pytest.skip("no gdb")
    program = compiled_program(arch, tmp_path)
    functions = ("many", "both", "all", "half", "less", "fib")
    chosen = [word for name in functions for word in ("-f", name)]
    own = traced(program, str(compiled_stub(arch, STUBS / "shows.c", tmp_path)), *chosen)
    places = {name: at for name, at in functions_of(program).items() if name in functions}
    sites = {one["symbol"]: int(one["ip"], 16) for one in ftpatch("list", "--json", program).json}
    seen, raw = registers_by_gdb(own, places, list(NAMES[arch]), emulator(arch))
    rows = shown(raw, arch)
    assert len(rows) == len(seen) >= 2 * (4 + 4 + 15)
    stack: list[tuple[str, int]] = []
    for (kind, name, held), row in zip(seen, rows, strict=True):
        call, regs = row["fgraph_call"], row["ftrace_regs"]
        assert row["kind"] == kind
        if kind == 0:
            stack.append((name, int(call["parent"])))
        else:
            name, back = stack.pop()
            assert back == held[list(NAMES[arch])[{"x86_64": 17, "i386": 9, "arm64": 33}[arch]]]
        assert call["func"] == places[name] and call["ip"] == sites[name]
        assert call["parent"] == (stack[-1][1] if kind == 0 else back)
        assert call["data"] == call["func"] ^ 0x5555
        assert (call["rettime"] >= call["calltime"] > 0) if kind else not call["rettime"]
        assert call["depth"] == len(stack) - (1 - kind) and call["tid"]
        assert not (call["overrun"] or call["missed"] or call["lost"])
        for by_gdb, member in NAMES[arch].items():
            own_value = regs["regs"][int(member)] if member.isdigit() else regs[member]
            wanted = held[by_gdb]
            if by_gdb in FLAGS:
                own_value, wanted = int(own_value) & FLAGS[by_gdb], wanted & FLAGS[by_gdb]
            if kind == 0 and by_gdb in ("rip", "eip", "pc"):
                assert 0 < own_value - wanted <= 9  # behind the site
                continue
            if kind == 0 and by_gdb == "x9":  # the site has put it there
                wanted = held["x30"]
            assert int(own_value) == wanted, (kind, name, by_gdb)
    assert not stack


FLIPPED = {"x86_64": 0x8C1, "i386": 0x8C1, "arm64": 0xF000_0000}
"""Flags that flips.c changes."""
UNCHANGED = ("rsp", "esp", "sp", "rip", "eip", "pc")


@every_arch
@pytest.mark.parametrize("at", ["entry", "return"])
def test_every_register_can_be_changed(at: str, arch: str, tmp_path: Path) -> None:
    """gdb sees what the stub has made of each: behind the site, or where the call returns."""
    if shutil.which("gdb-multiarch" if emulator(arch) else "gdb") is None:
        pytest.skip("no gdb")
    program = compiled_program(arch, tmp_path)
    flags = ("-DRETURN",) if at == "return" else ()
    own = traced(
        program, str(compiled_stub(arch, STUBS / "flips.c", tmp_path, *flags)), "-f", "many"
    )
    places = {"many": functions_of(program)["many"]}
    (site,) = ftpatch("list", "--json", "-f", "many", program).json
    after = {"many": int(site["ip"], 16) + (4 if arch == "arm64" else 5)}
    seen, raw = registers_by_gdb(own, places, list(NAMES[arch]), emulator(arch), after)
    wanted = 1 if at == "return" else 2
    changed = next(held for kind, _, held in seen if kind == wanted)
    regs = shown(raw, arch)[0]["ftrace_regs"]
    for number, (by_gdb, member) in enumerate(NAMES[arch].items()):
        before = int(regs["regs"][int(member)] if member.isdigit() else regs[member])
        now = changed[by_gdb]
        if by_gdb in FLAGS:
            assert (before ^ now) & FLAGS[by_gdb] == FLIPPED[arch]
        elif by_gdb in UNCHANGED or (by_gdb == "x30" and at == "return"):
            assert now == before
        elif by_gdb == "x9" and at == "entry":  # holds the way back into the function
            assert now == after["many"]
        else:
            assert before ^ now == 0x01010101 * (number + 1), by_gdb
