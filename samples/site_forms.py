# SPDX-License-Identifier: MIT
"""What stands at a site, read by Capstone, per architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reader import Image

__all__ = ["SITES", "Pad", "Site"]


class Pad(NamedTuple):
    """-fpatchable-function-entry=total,before; (0, 0) where the sites are calls of -pg."""

    total: int
    before: int


@dataclass(frozen=True)
class Site:
    """One patchable place: its address, and what Capstone says stands there."""

    ip: int
    state: str
    target: str | None
    width: int


def x86_site(image: Image, record: int) -> Site:
    """Behind an endbr, a call of five or six bytes, or NOPs for one."""
    address = record + image.pad.before
    first = image.instruction(address)
    if first is not None and first.mnemonic.startswith("endbr"):
        address += first.size
        first = image.instruction(address)
    if first is None:
        return Site(address, "unexpected", None, 0)
    if first.mnemonic in ("call", "addr32 call"):
        return Site(address, "call", image.target(first), first.size)
    wanted = max(5, image.pad.total - image.pad.before)
    code = image.decoder.disasm(image.read(address, wanted), address)
    width = sum(i.size for i in code if i.mnemonic == "nop")
    return Site(address, "nop" if width == wanted else "unexpected", None, width)


def arm64_site(image: Image, record: int) -> Site:
    """The record points to the first NOP, or to the literal before the function. The site is the
    second instruction of the pair; the first keeps LR in x9."""
    address = record + 4 * image.pad.before
    first = image.instruction(address)
    # gcc puts the BTI before the record, except where the record is before the function.
    if first is not None and first.mnemonic == "bti":
        address += 4
        first = image.instruction(address)
    second = image.instruction(address + 4)
    if first is None or second is None:
        return Site(address + 4, "unexpected", None, 4)
    saves = first.mnemonic == "nop" or (first.mnemonic, first.op_str) == ("mov", "x9, x30")
    if saves and second.mnemonic == "nop":
        return Site(address + 4, "nop", None, 4)
    if saves and first.mnemonic == "mov" and second.mnemonic == "bl":
        return Site(address + 4, "call", image.target(second), 4)
    return Site(address + 4, "unexpected", None, 4)


def riscv64_site(image: Image, record: int) -> Site:
    """Eight bytes: NOPs, or a pair whose link register is t0, in the -pg form ra. Where a literal
    of eight bytes comes before the function (CALL_OPS), ip is the second of the pair."""
    nop = 2 if image.elf["e_flags"] & 1 else 4  # EF_RISCV_RVC
    address = record + nop * image.pad.before
    ip = address + (4 if image.address_of("ftrace_nop_ops") else 0)
    link = "t0" if image.pad.total else "ra"
    code = list(image.decoder.disasm(image.read(address, 8), address))
    words = [f"{insn.mnemonic} {insn.op_str}".split(", ") for insn in code]
    words = [["jalr ra", "ra", "0"] if word == ["jalr ra"] else word for word in words]
    match words:
        case [[first, high], [second, base, low]]:
            upper = (int(high, 0) << 12 ^ 1 << 31) - (1 << 31)
            target = (address + upper + int(low, 0)) % 2**64
            if (first, second, base) == (f"auipc {link}", f"jalr {link}", link):
                return Site(ip, "call", image.name_of(target), 8)
        case [["auipc t0", _], ["nop "]]:  # what a kernel leaves
            return Site(ip, "nop", None, 8)
    idle = sum(insn.size for insn in code if insn.mnemonic in ("nop", "c.nop")) == 8
    return Site(ip, "nop" if idle else "unexpected", None, 8)


SITES: dict[str, Callable[[Image, int], Site]] = {
    "x86_64": x86_site,
    "i386": x86_site,
    "arm64": arm64_site,
    "riscv64": riscv64_site,
}
