"""What ftrace_init of this kernel will do with this table (kernel/trace/ftrace.c).

ftrace_process_locs walks the table, skips what is no record, adjusts the others and sorts them;
ftrace_update_code calls ftrace_init_nop for one after the other, and the first that is refused ends
it: one ftrace bug, and no tracing after it.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.bug import FtraceBug
from ftpatch.image.own_kallsyms import own_lookup
from ftpatch.sites import Sites
from ftpatch.sites.adjust import adjust

__all__ = ["Forecast", "forecast"]

ACTION = "Initializing ftrace call sites"


@dataclass(frozen=True, slots=True)
class Forecast:
    """``entries``: the N of "ftrace: allocating N entries"; ``bug``: the ftrace bug, if any."""

    entries: int
    bug: FtraceBug | None


def forecast(sites: Sites) -> Forecast:
    """Predict ftrace_init for the records as they are in the file now."""
    image, arch, abi = sites.image, sites.arch, sites.abi
    value = sites.table.value
    live = ~np.isin(value, np.array(arch.skipped(abi), np.uint64))
    if abi.null_seen:
        live &= _in_text(sites, value)
    record = value[live]
    ip = adjust(image, arch, abi, record)
    skipped = int((ip == 0).sum())
    ip = ip[ip != 0]
    order = np.argsort(ip, kind="stable")
    ip = ip[order]
    start, expected = arch.init_expects(ip, abi)
    at = ip + np.uint64(start & 0xFFFF_FFFF_FFFF_FFFF)
    actual, there = _read(sites, at, expected.shape[1])
    # The second record of a site meets what ftrace_init made of the first.
    again = np.zeros(len(ip), bool)
    again[1:] = ip[1:] == ip[:-1]
    actual[again] = arch.after_init(ip, abi)[again]
    refused = np.flatnonzero(~there | (actual != expected).any(axis=1))
    entries = len(record) - skipped if abi.null_seen else len(value)
    if not len(refused):
        return Forecast(entries, None)
    first = refused[:1]
    code = errno.EINVAL if there[first][0] else errno.EFAULT
    own = own_lookup(image, int(ip[first][0]), arch.relative)
    symbol, offset, size = own or image.kallsyms.lookup(ip[first])[0]
    shown, _ = _read(sites, ip[first], arch.insn_size)
    if again[first][0] and start == 0:
        shown = actual[first]
    bug = FtraceBug(
        code,
        int(ip[first][0]),
        symbol,
        offset,
        size,
        shown[0].tobytes(),
        expected[first][0].tobytes() if arch.says_expected else b"",
        ACTION,
        image.elf.word,
    )
    return Forecast(entries, bug)


def _read(sites: Sites, at: NDArray[np.uint64], width: int) -> tuple[U8, NDArray[np.bool_]]:
    """What stands in memory at addresses, whether it is code or not, and where it can be read."""
    code, there = sites.image.elf.gather(sites.image.elf.offset_of(at), width)
    return code, there | sites.image.elf.in_memory(at)


def _in_text(sites: Sites, value: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """is_kernel_text() or is_kernel_inittext(); all are where a bound is missing."""
    inside = np.zeros(len(value), bool)
    for start, end in (("_stext", "_etext"), ("_sinittext", "_einittext")):
        low, high = sites.image.symbols.find(start), sites.image.symbols.find(end)
        if low is None or high is None:
            return np.ones(len(value), bool)
        inside |= (value >= low) & (value < high)
    return inside
