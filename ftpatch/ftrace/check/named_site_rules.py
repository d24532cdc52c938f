# SPDX-License-Identifier: MIT
"""The named sites inside ftrace_caller: what they are when a kernel boots.

ftrace_call         call ftrace_stub        ftrace_update_ftrace_func writes over whatever is there
ftrace_graph_call   jmp ftrace_stub, nop    arm64's ftrace_modify_graph_caller compares first
"""

from __future__ import annotations

import numpy as np

from ftpatch.core.changes import Kind
from ftpatch.core.columns import addresses
from ftpatch.core.journal import journalled
from ftpatch.ftrace.check.findings import Broken
from ftpatch.ftrace.sites import Sites

__all__ = ["astray"]


def astray(sites: Sites) -> Broken:
    """Named sites that are not at rest, unless they are as the journal says. Until a tracer is set,
    every function that calls ftrace_caller runs into what stands there."""
    image, arch = sites.image, sites.arch
    ip, words = list[int](), list[str]()
    for name in arch.named_sites if image.is_kernel and not image.is_relocatable else ():
        at, rest = image.symbols.find(name), arch.named_site_rest(name)
        goal = image.symbols.find(rest) if rest else 0
        if at is None or goal is None:
            continue
        forms = {
            arch.named_site_code(name, at, to, sites.abi)
            for to in {goal, 0 if "graph" in name else goal}
        }
        place = addresses(at)
        offset = image.elf.offset_of(place, executable=True)
        code, there = image.elf.gather(offset, max(map(len, forms)))
        held = code[0].tobytes()
        ours = np.isin(place, journalled(sites.blocks, Kind.CODE).owner)[0]
        ours &= held == sites.left.elf.gather(offset, len(held))[0][0].tobytes()
        if there[0] and (ours or any(held.startswith(form) for form in forms)):
            continue
        ip.append(at)
        words.append(f"{name} {_does(sites, name, held, at)}; as compiled, it {_rests(rest)}")
    return addresses(*ip), words


def _does(sites: Sites, name: str, code: bytes, at: int) -> str:
    target = sites.arch.named_site_target(name, code, at)
    if not target:
        return f"is {code.hex(':')}" if target is None else "is a NOP"
    symbol, offset, _ = sites.image.kallsyms.lookup(addresses(target))[0]
    return (
        f"goes to {symbol}" + (f"+{offset:#x}" if offset else "")
        if symbol
        else f"goes to {target:#x}"
    )


def _rests(rest: str) -> str:
    return f"goes to {rest}" if rest else "is a NOP"
