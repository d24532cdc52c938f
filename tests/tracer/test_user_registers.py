# SPDX-License-Identifier: MIT
"""A user's stub that takes registers: what it sees and makes of them, by gdb."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import ftpatch
from tests.support.regs_gdb import registers_by_gdb
from tests.support.tracer_programs import REGISTERED, SOURCES, emulator, traced
from tests.support.user_stubs import (
    CALLER,
    EMPTY,
    HEAD,
    RETURN,
    STUBS,
    compiled_program,
    compiled_stub,
    functions_of,
    shown,
)

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
    "arm": {**{f"r{n}": str(n) for n in range(13)}, **{n: n for n in ("sp", "lr", "pc", "cpsr")}},
    "arm64": {**{f"x{n}": str(n) for n in range(31)}, "sp": "sp", "cpsr": "pstate", "pc": "pc"},
    "riscv64": {
        name: name
        for name in (
            *("pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
            *(f"a{n}" for n in range(8)),
            *(f"s{n}" for n in range(2, 12)),
            *(f"t{n}" for n in range(3, 7)),
        )
    },
    "s390x": {"pswm": "psw_mask", "pc": "psw_addr", **{f"r{n}": str(n) for n in range(16)}},
    "ppc64le": {
        **{f"r{n}": str(n) for n in range(32)},
        "pc": "nip",
        "lr": "link",
        "ctr": "ctr",
        "xer": "xer",
        "cr": "ccr",
    },
}
"""The registers by gdb's names, and their members of struct ftrace_regs."""
every_arch = pytest.mark.parametrize("arch", [arch for arch in REGISTERED if arch in NAMES])
PLACES = ("rip", "eip", "pc")
SITE = {"x86_64": 5, "i386": 5, "arm": 6, "arm64": 4, "riscv64": 8, "s390x": 6, "ppc64le": 4}
"""Bytes of a site from its ip on."""
BEFORE = {"ppc64le": 4}
"""Bytes of a site in front of its ip."""
FLAGS = {"eflags": 0x8D5, "cpsr": 0xF000_0000, "pswm": 3 << 44}
FLAGS |= {"cr": 0xFFFF_FFFF, "xer": 7 << 29}
"""Those that code sees: CF, PF, AF, ZF, SF, OF; NZCV; SO, OV, CA."""
ARRAY = dict.fromkeys(NAMES, "regs") | {"arm": "r", "s390x": "gprs", "ppc64le": "gpr"}
"""The member that has registers by number."""


def _plain(arch: str, address: int) -> int:
    """The address without what says that Thumb is there."""
    return address & ~(arch == "arm")


WAY_BACK = (("arm64", "x9"), ("riscv64", "t0"), ("s390x", "r1"))
"""What holds the address behind the site, where that is a register."""
BY_SITES = (("arm64", "x9", "x30"), ("ppc64le", "r0", "lr"))
"""Where a site has put which register."""
BEHIND = (*WAY_BACK, ("ppc64le", "ctr"))
"""By what a function is gone on with."""


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
    entries = {name: sites[name] - BEFORE.get(arch, 0) for name in places}
    seen, raw = registers_by_gdb(own, entries, list(NAMES[arch]), emulator(arch))
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
            at = held[next(name for name in PLACES if name in NAMES[arch])]
            assert _plain(arch, back) == at
        assert call["func"] == places[name] and call["ip"] == sites[name]
        assert call["parent"] == (stack[-1][1] if kind == 0 else back)
        assert call["data"] == call["func"] ^ 0x5555
        assert (call["rettime"] >= call["calltime"] > 0) if kind else not call["rettime"]
        assert call["depth"] == len(stack) - (1 - kind) and call["tid"]
        assert not (call["overrun"] or call["missed"] or call["lost"])
        for by_gdb, member in NAMES[arch].items():
            own_value = regs[ARRAY[arch]][int(member)] if member.isdigit() else regs[member]
            wanted = held[by_gdb]
            if by_gdb in PLACES:
                own_value = _plain(arch, int(own_value))
            if (arch, by_gdb) in GONE and kind:
                continue
            if by_gdb in FLAGS:
                own_value, wanted = int(own_value) & FLAGS[by_gdb], wanted & FLAGS[by_gdb]
            if kind == 0 and by_gdb in PLACES:
                assert 0 < own_value - wanted <= 9  # behind the site
                continue
            if kind == 0 and (arch, by_gdb) in WAY_BACK:
                wanted = sites[name] + SITE[arch]
            for of, register, put in BY_SITES:
                if kind == 0 and (arch, by_gdb) == (of, register):
                    wanted = held[put]
            assert int(own_value) == wanted, (kind, name, by_gdb)
    assert not stack


GONE = (("arm", "lr"), ("ppc64le", "r0"))
"""Nothing is in these where a function has returned."""
FLIPPED = {"eflags": 0x8C1, "cpsr": 0xF000_0000, "pswm": 3 << 44}
FLIPPED |= {"cr": 0x0101_0101 * 37, "xer": 7 << 29}
"""Flags that flips.c changes."""
UNCHANGED = ("rsp", "esp", "sp", *PLACES)
FIXED = {"arm": "lr", "s390x": "r15", "ppc64le": "r1"}
LINKS = (("arm64", "x30"), ("riscv64", "ra"), ("s390x", "r14"), ("ppc64le", "lr"))


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
    (site,) = ftpatch("list", "--json", "-f", "many", program).json
    places = {"many": int(site["ip"], 16) - BEFORE.get(arch, 0)}
    after = {"many": int(site["ip"], 16) + SITE[arch]}
    seen, raw = registers_by_gdb(own, places, list(NAMES[arch]), emulator(arch), after)
    wanted = 1 if at == "return" else 2
    changed = next(held for kind, _, held in seen if kind == wanted)
    regs = shown(raw, arch)[0]["ftrace_regs"]
    for number, (by_gdb, member) in enumerate(NAMES[arch].items()):
        before = int(regs[ARRAY[arch]][int(member)] if member.isdigit() else regs[member])
        before = _plain(arch, before) if by_gdb in PLACES else before
        now = changed[by_gdb]
        if by_gdb in FLAGS:
            assert (before ^ now) & FLAGS[by_gdb] == FLIPPED[by_gdb]
        elif (arch, by_gdb) in GONE and at == "return":
            continue
        elif by_gdb in (*UNCHANGED, FIXED.get(arch)) or (
            (arch, by_gdb) in LINKS and at == "return"
        ):
            assert now == before
        elif (arch, by_gdb) in BEHIND and at == "entry":
            assert now == after["many"]
        else:
            assert before ^ now == 0x01010101 * (number + 1), by_gdb


FLIPS = r"""
#include "said.h"
static void flip(struct ftrace_regs *regs)
{
	said(9, regs, sizeof(*regs));
	for (int n = 4; n < 32; n++)
		if (n != 21)
			regs->regs[n] ^= 0x01010101ul * n;
}
"""


@pytest.mark.parametrize("at", ["entry", "return"])
def test_registers_of_loongarch64(at: str, tmp_path: Path) -> None:
    """No gdb here knows them: they have what a program puts there, and it tells what a stub has
    made of each."""
    arch = "loongarch64"
    text = (SOURCES / "filled_loongarch64.c").read_text()
    program = compiled_program(arch, tmp_path, "-fpatchable-function-entry=0", text=text)
    does = "{ (void)call; flip(regs); }\n"
    body = f"{CALLER}{EMPTY}{RETURN}{does}" if at == "return" else CALLER + does
    own = traced(program, str(compiled_stub(arch, HEAD + FLIPS + body, tmp_path)))
    seen = tmp_path / "seen"
    command = ["sh", "-c", 'exec 9>"$0" "$@"', str(seen), *emulator(arch), str(own)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    held = np.fromfile(seen, "<u8").tolist()
    said = [int(word, 16) for word in done.stdout.split()]
    at_probed = functions_of(program)["probed"]
    assert len(held) == 33 and held[32] == (at_probed + 8 if at == "entry" else held[1])
    for n in (*range(4, 12), *range(13, 21), *range(22, 32)):
        assert held[n] == 0x1234000000000000 + n * 0x10001, n
        assert said[n] == held[n] ^ 0x01010101 * n, n
    if at == "entry":  # t0 is the site's, with the way back out of the function, and into it
        assert held[12] == held[1] and said[12] == at_probed + 8
    else:
        assert held[12] == at_probed + 8 and said[12] == held[12] ^ 0x01010101 * 12
    assert said[32:] == [0x3FF0000000000000 + (n << 44) for n in range(32)]
