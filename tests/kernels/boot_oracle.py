# SPDX-License-Identifier: MIT
"""Which functions a boot runs, by QEMU's own log: no code of ftpatch and no site that it changed.

QEMU logs where each block of translated code begins, before it runs it. A block ends at a branch,
so one begins at the entry of each function that is called, and on x86, where an untouched kernel
calls __fentry__ up to ftrace_init, one at the address to which that returns. With one instruction a
block, each instruction is seen.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import boot_tracer_of

from .independent import Vmlinux
from .qemu import MACHINES, need, raw_image

__all__ = ["ALIKE", "GLOBAL", "SAME", "blocks", "entered", "stepped"]

SAME = ("-m", "256M", "-icount", "shift=0")
"""Words for QEMU in boots that are compared: its clocks count instructions, not the host's time."""
LIMIT = 600  # seconds; it takes 10 to 30
CALL = 5  # bytes of x86's call
GLOBAL = 8  # bytes from ppc64le's global entry of a function to the local one
MAKES_R2 = 0x3C4C  # addis 2, 12, ...: what begins there
PIPE = 1 << 20  # bytes
# [cs base/program counter/flags/cflags] of a block; a block that an interrupt kept from being run.
LINE = re.compile(rb"^(?:Trace .*?/([0-9a-f]+)/|(Stopped) )", re.MULTILINE)
# Where a kernel's first bytes are before its page tables are: x86's linked physical address, and
# where QEMU's `virt` puts an Image.
LOADED = {
    "x86_64": 0x100_0000,
    "i386": 0x100_0000,
    "arm64": 0x4020_0000,
    "riscv64": 0x8020_0000,
    "ppc64le": 0,
}
ALIKE = {
    "ppc64le": (
        *("-M", "cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off"),
        *("-M", "kernel-addr=0x8000000", "-chardev", "null,id=events"),
        *("-device", "spapr-vty,chardev=events,reg=0x710000f0"),
    ),
}
"""Words for the machine that a traced kernel is on: it looks at all that there is."""
BEGINS = {"riscv64": "_start"}
"""What stands there, if not _text."""
TEXT = (("_text", "_etext"), ("_sinittext", "_einittext"))
# What runs hundreds of thousands of blocks: those behind its entry are not logged, and none of what
# has no site.
BUSY = (
    *("__fentry__", "__x86_return_thunk", "__x86_indirect_thunk_array", "clear_bss"),
    *("memset_orig", "memcpy_orig", "quick_pit_calibrate"),
    *("native_calibrate_cpu_early.part.0", "memblock_alloc_try_nid", "__orc_find", "sort_r"),
    *("__init_single_page.constprop.0", "memmap_init_range", "numa_init", "jump_label_cmp"),
    *("jump_label_swap", "do_swap", "copy_from_kernel_nofault", "unwind_init", "romchecksum"),
    *("copy_from_kernel_nofault_allowed", "reserve_ibft_region", "reserve_bootmem_region"),
    *("native_flush_tlb_one_user", "static_call_site_cmp", "static_call_site_swap"),
    *(
        "__early_set_fixmap",
        "__early_ioremap",
        "early_iounmap",
        "__free_pages_core",
        "early_pfn_to_nid",
    ),
    *("copy_and_flush", "start_here_multiplatform", "memset", "memchr"),  # ppc64le's
    *("create_kpti_ng_temp_pgd", "crc32_body", "fdt_offset_ptr", "pfn_valid", "fdt_next_tag"),
    *(
        "early_page_uninitialised",
        "pgattr_change_is_safe",
        "__free_pages_ok",
        "__apply_alternatives",
    ),
)


def entered(image: Vmlinux, scratch: Path, until: int) -> list[int]:
    """The ip of each site that an untouched kernel runs, in order, up to an address."""
    at = _entries(image) if image.pads else image.sites + np.uint64(CALL)
    found, ends = _both(image, at, image.sites), _both(image, [until], [0])
    if image.arch == "ppc64le":  # a symbol is where a pointer leads, a call goes beyond
        ends |= _both(image, [until + GLOBAL], [0])
        entry = at - np.uint64(GLOBAL)
        there = image.insns(entry) >> np.uint32(16) == MAKES_R2
        found |= _both(image, entry[there], image.sites[there])
    return _trace(image, scratch, found, ends, 0)


def stepped(image: Vmlinux, scratch: Path, count: int) -> list[int]:
    """The same by single steps, for the first so many."""
    at = image.sites
    return _trace(image, scratch, _both(image, at, at), {}, count, *one_a_block(image.arch))


def one_a_block(arch: str) -> list[str]:
    """QEMU's words for one instruction a block; they were renamed in 8.1."""
    program = MACHINES[arch][0]
    need(program)
    said = subprocess.run([program, "-help"], capture_output=True, text=True, check=True).stdout
    return ["-singlestep"] if "-singlestep" in said else ["-accel", "tcg,one-insn-per-tb=on"]


def _entries(image: Vmlinux) -> NDArray[np.uint64]:
    """Where the functions begin; with CALL_OPS, a record is two words before that."""
    records = image.records[image.records != 0]
    return np.asarray(records + np.uint64(8 if image.call_ops else 0))


def _shift(image: Vmlinux) -> int:
    """Bytes from where a kernel is linked to where it is before its page tables are."""
    return LOADED[image.arch] - image.address(BEGINS.get(image.arch, "_text"))


def _both(image: Vmlinux, at: Iterable[int], ips: Iterable[int]) -> dict[int, int]:
    """``ips`` by address, and by where that is before the page tables are."""
    shift = _shift(image)
    rows = [(int(one), int(ip)) for one, ip in zip(at, ips, strict=True)]
    return dict(rows) | {one + shift: ip for one, ip in rows}


def _ranges(image: Vmlinux, at: Iterable[int]) -> str:
    """What QEMU is to log."""
    known = np.sort(np.fromiter(at, np.uint64))
    found: list[tuple[int, int]] = []
    for name in BUSY:
        start, size = image.symbol(name) or (0, 0)
        end = start + size
        within = known[(known >= np.uint64(start)) & (known < np.uint64(end))]
        if len(within):
            start = int(within[-1]) + 1
            assert within[-1] - within[0] <= GLOBAL, f"{name} has two sites"
        if start < end:
            found.append((start, end))
    holes = sorted(set(found))
    shift = _shift(image)
    ranges = []
    for name, last in TEXT:
        start, stop = image.address(name), image.address(last)
        ranges.append((start + shift, stop + shift))
        for hole, end in holes:
            if start <= hole < stop:
                ranges.append((start, hole))
                start = end
        ranges.append((start, stop))
    return ",".join(f"{start:#x}..{end - 1:#x}" for start, end in ranges if start < end)


def _trace(
    image: Vmlinux,
    scratch: Path,
    sites: dict[int, int],
    ends: dict[int, int],
    count: int,
    *words: str,
) -> list[int]:
    """Boot up to one of ``ends``, or for ``count`` of the sites."""
    found: list[int] = []
    emulator = boot_tracer_of(image.arch).emulator  # the words decide what parsing them calls
    append = emulator.said(next(iter(emulator.consoles)), "nokaslr")
    more = ["-d", "exec,nochain", "-dfilter", _ranges(image, sites), *words]
    with raw_image(image.path, image.arch, scratch) as kernel:
        command: list[str | Path] = [
            *MACHINES[image.arch],
            *ALIKE.get(image.arch, ()),
            *SAME,
            "-kernel",
            kernel,
            "-append",
            append,
        ]
        with _machine([*command, *more]) as log:
            now = 0
            for at in blocks(log):
                before, now = now, at
                if at in sites:
                    if before == at - GLOBAL and sites.get(before) == sites[at]:
                        continue  # that block ended between two entries
                    found.append(sites[at])
                    if len(found) == count:
                        return found
                elif at in ends:
                    return found
    raise AssertionError(f"the boot ended after {len(found)} sites")


def blocks(log: IO[bytes]) -> Iterator[int]:
    """Where each block begins that was run."""
    rest, held = b"", None
    while chunk := log.read1(PIPE):  # type: ignore[attr-defined]
        text = rest + chunk
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        for at, stopped in LINE.findall(text[:end]):
            if held is not None and not stopped:
                yield held
            held = None if stopped else int(at, 16)


@contextmanager
def _machine(command: list[str | Path]) -> Iterator[IO[bytes]]:
    """QEMU's log, as it comes: the whole of it would have gigabytes."""
    ours, theirs = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE)
    quiet = subprocess.DEVNULL
    command = [*command, "-D", f"/dev/fd/{theirs}"]
    with (
        os.fdopen(ours, "rb") as log,
        subprocess.Popen(command, stdin=quiet, stdout=quiet, pass_fds=[theirs]) as machine,
    ):
        os.close(theirs)
        timer = threading.Timer(LIMIT, machine.kill)
        timer.start()
        try:
            yield log
        finally:
            timer.cancel()
            machine.kill()
