# SPDX-License-Identifier: MIT
"""Prediction of this kernel's ftrace_init for this table (kernel/trace/ftrace.c).

ftrace_process_locs walks the table, skips what is no record, adjusts the others and sorts them;
ftrace_update_code calls ftrace_init_nop for one after the other, and the first that is refused ends
it: one ftrace bug, and no tracing after it. Some records it does not live to refuse.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.core.columns import addresses, within
from ftpatch.ftrace.call_adjust import adjust
from ftpatch.ftrace.ftrace_bug import FtraceBug
from ftpatch.ftrace.print_ip_ins import signed_bytes
from ftpatch.ftrace.site_code import call_rows, read_code
from ftpatch.ftrace.sites import Sites
from ftpatch.image.kallsyms.symbol_pos import is_kernel, own_lookup

__all__ = ["Death", "FtraceInit", "Verdict", "predict"]

ACTION = "Initializing ftrace call sites"


class Verdict(StrEnum):
    """Prediction for a kernel, or for the one that loads a module, as far as ftrace_init goes."""

    BOOTS = "boots"
    OFF = "ftrace-off"
    DIES = "dies"


@dataclass(frozen=True, slots=True)
class Death:
    """A record that kills the kernel, its place by kallsyms (empty without a symbol), and why."""

    record: int
    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FtraceInit:
    """``entries``: the N of "ftrace: allocating N entries", or, of a ``module``, the records that
    the loader gives to ftrace, which it says nothing of; ``bug``: the ftrace bug, if any;
    ``compares``: what ftrace_init_nop wants to find at each, in words; ``death``: what it dies of,
    if anything."""

    entries: int
    bug: FtraceBug | None
    module: bool = False
    compares: str = ""
    death: Death | None = None

    @property
    def verdict(self) -> Verdict:
        """The prediction as one of three verdicts."""
        if self.death is not None:
            return Verdict.DIES
        return Verdict.BOOTS if self.bug is None else Verdict.OFF


def predict(sites: Sites) -> FtraceInit:
    """Predict ftrace_init for the records as they are in the file now."""
    image, arch, abi = sites.image, sites.arch, sites.abi
    value = sites.table.value
    live = ~np.isin(value, np.array(arch.skipped(abi), np.uint64))
    if abi.null_seen:
        live &= _in_text(sites, value)
    record = np.sort(value[live], kind="stable")
    ip = adjust(image, arch, abi, record)
    # Linux kernel commit 6eeca746fa5f ("ftrace: Test mcount_loc addr before calling
    # ftrace_call_addr()") (in v6.15): what becomes null then is a record like any other. A module
    # does not tell which of the two its kernel does.
    tests_first = abi.null_seen or image.is_relocatable
    kept = (ip != 0) | tests_first
    record, ip = record[kept], ip[kept]
    start, expected = arch.init_expects(ip, abi)
    at = ip + np.uint64(start & 0xFFFF_FFFF_FFFF_FFFF)
    actual, there = _read(sites, ip, at, expected.shape[1])
    # The second record of a site finds the code that ftrace_init wrote for the first.
    again = np.zeros(len(ip), bool)
    again[1:] = ip[1:] == ip[:-1]
    actual[again] = arch.after_init(ip, abi)[again]
    checked = ~within(ip, abi.unchecked)
    refused = np.flatnonzero(checked & (~there | (actual != expected).any(axis=1)))
    entries = len(record) if abi.null_seen else len(value)
    death = _death(sites, record, ip, there, refused)
    if not len(refused) or death is not None:
        return FtraceInit(
            entries=entries,
            bug=None,
            module=image.is_relocatable,
            compares=_compares(sites),
            death=death,
        )
    first = refused[:1]
    code = errno.EINVAL if there[first][0] else errno.EFAULT
    symbol, offset, size = _symbol(sites, int(ip[first][0]))
    shown, _ = _read(sites, ip[first], ip[first], arch.insn_size)
    if again[first][0] and start == 0:
        shown = actual[first]
    wanted = expected[first] if arch.says_expected else np.zeros((1, 0), np.uint8)
    second = bool(again[first][0]) and start == 0
    bug = FtraceBug(
        errno=code,
        ip=int(ip[first][0]),
        symbol=symbol,
        offset=offset,
        size=size,
        actual=shown[0].tobytes(),
        expected=wanted[0].tobytes(),
        action=ACTION,
        word=image.elf.word,
        actual_or=abi.chosen if second else (),
        signed=signed_bytes(image, arch) if arch.says_expected else False,
    )
    bug = _of_module(sites, bug, second=second) if image.is_relocatable else bug
    return FtraceInit(
        entries=entries, bug=bug, module=image.is_relocatable, compares=_compares(sites)
    )


def _death(
    sites: Sites,
    record: NDArray[np.uint64],
    ip: NDArray[np.uint64],
    there: NDArray[np.bool_],
    refused: NDArray[np.intp],
) -> Death | None:
    """Find what kills the kernel before the first record that it refuses, if anything."""
    last = int(refused[0]) if len(refused) else len(ip)
    for deadly in sites.arch.deadly(record, ip, there, sites.abi):
        rows = np.flatnonzero(deadly.mask)
        if len(rows) and (deadly.early or rows[0] <= last):
            at = int(record[rows[0]])
            symbol, offset, _ = _symbol(sites, at)
            return Death(at, f"{symbol}+{offset:#x}" if symbol else "", deadly.reason)
    return None


def _symbol(sites: Sites, address: int) -> tuple[str, int, int]:
    """(name, offset, size up to the next) as the kernel prints it."""
    own = own_lookup(sites.image, address)
    if own is None and sites.image.is_kernel and not is_kernel(sites.image, address):
        return "", 0, 0
    return own or sites.image.kallsyms.lookup(addresses(address))[0]


def _compares(sites: Sites) -> str:
    start, expected = sites.arch.init_expects(np.zeros(1, np.uint64), sites.abi)
    if not expected.shape[1]:
        return "nothing: it turns whatever is at a record into a NOP"
    if sites.abi.pad:
        return f"{expected.shape[1]} bytes of NOP, {-start} before ip"
    symbols = sites.image.symbols
    named = (n for n in sites.arch.mcount_names if symbols.find(n) == sites.abi.mcount)
    return f"a call of {next(named, hex(sites.abi.mcount))}"


def _of_module(sites: Sites, bug: FtraceBug, *, second: bool) -> FtraceBug:
    """Mask the parts of a module's address and calls that are unknown before it is loaded. (The
    kernel prints a bare address, since it does not know the module's symbols yet.) The trampoline
    that the first record of a site got is unknown to the ``second`` as well."""
    inside = (s for s in sites.image.elf.sections if 0 <= bug.ip - s.address < s.size)
    section = next((s for s in inside if s.address), None)
    where = f"{section.name}+{bug.ip - section.address:#x}" if section else hex(bug.ip)

    field = sites.arch.call_field, sites.arch.call_field + 4
    relocated = call_rows(sites.image, sites.arch, addresses(bug.ip))[0] >= 0
    led = second and bool(sites.arch.trampoline)
    return replace(
        bug,
        where=where,
        module=sites.image.module_name,
        actual_filled=field if relocated or led else (0, 0),
        expected_filled=field,
    )


def _read(
    sites: Sites, ip: NDArray[np.uint64], at: NDArray[np.uint64], width: int
) -> tuple[U8, NDArray[np.bool_]]:
    """Read memory at addresses within sites, whether it is code or not, and where it can
    be read."""
    elf = sites.image.elf
    if not sites.image.is_relocatable:
        code, there = elf.gather(elf.offset_of(at), width)
        # x86-64 kernels up to v6.14 have their per-CPU data at 0 in the file, and nothing there.
        mapped = at >= elf.text[:, 0].min(initial=0xFFFF_FFFF_FFFF_FFFF)
        return code, (there | elf.in_memory(at)) & mapped
    begin = ip - np.uint64(sites.lead)
    code, _ = read_code(sites.image, sites.arch, sites.abi, ip, elf.offset_of(begin))
    skip = int((at - begin)[0]) if len(at) else 0
    return code[:, skip : skip + width], elf.in_memory(at)


def _in_text(sites: Sites, value: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Test is_kernel_text() or is_kernel_inittext(); true for all if a bound is missing."""
    inside = np.zeros(len(value), bool)
    for start, end in (("_stext", "_etext"), ("_sinittext", "_einittext")):
        low, high = sites.image.symbols.find(start), sites.image.symbols.find(end)
        if low is None or high is None:
            return np.ones(len(value), bool)
        inside |= (value >= low) & (value < high)
    return inside
