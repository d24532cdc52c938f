# SPDX-License-Identifier: MIT
"""Probes in a kernel on disk: do they count what the kernel's own kprobes and kretprobes count in
the same boot, and fetch what user space has passed?"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ftpatch.errors import UsageError
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import open_image
from ftpatch.inject.kernel_jumps import KernelJumps
from ftpatch.names.functions import read_functions

from .apt import FetchError
from .built_modules import build_modules
from .cli import RUN_LIMIT
from .fetch import Kernel, kernels
from .guest import cpio
from .independent import Vmlinux
from .qemu import two_processors
from .trees import ensure_tree

ARCHES = ("x86_64", "arm64", "riscv64")
UUID = "generate_random_uuid"
"""A function of lib/, which has no site."""
MAXACTIVE = {"do_mkdirat": 16, "do_sys_openat2": 16, "hrtimer_nanosleep": 2, UUID: 16}
WITHIN = {"do_mkdirat": (0.2, 0.6), "do_sys_openat2": (0.3, 0.8), UUID: (0.7,)}
"""Functions that have probes within, from so much of their code on."""
TIGHT = ("do_sys_openat2", "most")
"""Functions and probes that are left out on arm64, whose padding has 4 KB."""
SLEEPERS, MADE, READ = 5, 20, 9
INIT = f"""#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc p /proc; mount -t devtmpfs d /dev
insmod /kretprobed.ko PLACES
rmdir /begin
mkdir /twice; mkdir /twice
for one in a b c d; do
    (i=0; while [ $i -lt {MADE} ]; do mkdir /$one$i; i=$((i+1)); done) &
done
for one in {" ".join(map(str, range(SLEEPERS)))}; do sleep 2 & done
i=0; while [ $i -lt {READ} ]; do cat /proc/sys/kernel/random/uuid >/dev/null; i=$((i+1)); done
wait
rmdir /end
rmmod kretprobed
reboot -f
"""
PROBES = (
    "p:rm do_rmdir dfd=$arg1:s32 name=+0(+0($arg2)):string",
    "p:mk do_mkdirat name=+u0(+8($arg2)):ustring also=+0(+0($arg2)):string mode=$arg3:x16",
    "p:most do_rmdir most=@pid_max:u32 seven=\\7:u8 bad=@{hole}:u64",
)
EEXIST = 17
HOLE = 1 << 20
"""Bytes before a kernel at which nothing is mapped."""
POSSIBLE = 1 << 15
"""pid_max of a machine with few processors: PID_MAX_DEFAULT of include/linux/threads.h."""


@dataclass(frozen=True)
class Counted:
    """What the kernel's own kretprobe says of a function."""

    entered: int
    returned: int
    missed: int
    values: int


def _kernel(image: Vmlinux) -> Kernel:
    if image.arch not in ARCHES:
        pytest.skip(f"no probes in a kernel on disk for {image.arch}")
    return next(one for one in kernels() if one.path == image.path)


def _within(image: Vmlinux) -> list[tuple[str, int]]:
    """Functions and offsets of places that can have a jump."""
    opened = open_image(image.path)
    jumps = KernelJumps(read_sites(opened), read_functions(opened))
    found = []
    for name, parts in WITHIN.items():
        parts = parts[:1] if image.arch == "arm64" else parts
        if image.arch == "arm64" and name in TIGHT:
            continue
        start, size = image.symbol(name) or (0, 0)
        for part in parts:
            for offset in range(int(size * part) // 4 * 4, size):
                with contextlib.suppress(UsageError):
                    jumps.at(start + offset, None)
                    found.append((name, offset))
                    break
    return found


def _counted(console: str) -> dict[str, Counted]:
    form = r"kretprobed (\w+) entered (\d+) returned (\d+) missed (\d+) values (-?\d+)"
    return {name: Counted(*map(int, rest)) for name, *rest in re.findall(form, console)}


def test_they_count_what_kretprobes_count(traceable: Vmlinux, tmp_path: Path) -> None:
    kernel, keep = _kernel(traceable), tmp_path / "kept"
    try:
        busybox = ensure_tree(kernel).busybox.read_bytes()
        module = build_modules(kernel, "kretprobed.c", scratch=tmp_path)["kretprobed.ko"]
    except FetchError as error:
        pytest.skip(str(error))
    initrd = tmp_path / "initrd"
    within, tight = _within(traceable), TIGHT if traceable.arch == "arm64" else ()
    active = {name: most for name, most in MAXACTIVE.items() if name not in tight}
    names, offsets = zip(*within, strict=True)
    chosen = f"names={','.join(active)} most={','.join(map(str, active.values()))} "
    chosen += f"within={','.join(names)} offsets={','.join(map(str, offsets))}"
    files = {
        "init": INIT.replace("PLACES", chosen).encode(),
        "bin/busybox": busybox,
        "kretprobed.ko": module,
    }
    initrd.write_bytes(cpio(files | {"proc/.keep": b""}))
    hole = hex(traceable.address("_text") - HOLE)
    result = {"x86_64": "%ax", "arm64": "%x0", "riscv64": "%a0"}[traceable.arch]
    probes = [one for one in PROBES if not one.startswith(tuple(f"p:{each} " for each in tight))]
    probes += [f"r{most}:{name}_r {name} ret=$retval:s64 low=$retval:s32"
               for name, most in active.items()]  # fmt: skip
    probes += [f"p:in{n} {name}+{offset} v={result}:s64"
               for n, (name, offset) in enumerate(within)]  # fmt: skip
    words = [word for one in probes for word in ("--probe", one.format(hole=hole))]
    command = [sys.executable, "-m", "ftpatch", "boot", str(traceable.path), "--json", *words]
    command += ["--keep", str(keep), "--", "-initrd", str(initrd), *two_processors(traceable.arch)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    assert keep.is_dir(), done.stderr
    assert (keep / "console").is_file(), done.stderr
    console = (keep / "console").read_text("utf-8", "replace")
    assert done.returncode == 0, done.stderr + console[-2000:]
    (keep / "vmlinux.boot").unlink()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    hits = [row for row in rows if "time" in row]
    removed = [(row["values"]["name"], row["time"]) for row in hits if row["probe"] == "rm"]
    assert [name for name, _ in removed] == ["/begin", "/end"]
    (_, low), (_, high) = removed
    counted = _counted(console)
    assert counted.keys() == active.keys(), console[-2000:]
    missed = {row["probe"]: row["missed"] for row in rows if "missed" in row}
    for name, said in counted.items():
        mine = [row for row in hits if row["probe"] == f"{name}_r" and low < _begin(row) < high]
        assert len(mine) == said.returned, name
        total = sum(row["values"]["ret"] for row in mine)
        assert (total - said.values) % (1 << 64) == 0, name
        assert missed[f"{name}_r"] == said.missed, name
    ways = {row["probe"]: row["way"] for row in rows if "way" in row}
    assert ways[f"{UUID}_r"] == "jump" and counted[UUID].returned >= READ
    form = r"kprobed (\w+)\+(\d+) hits (\d+) missed (\d+) values (-?\d+)"
    told = re.findall(form, console)
    assert [(name, int(offset)) for name, offset, *_ in told] == within, console[-2000:]
    for number, (name, offset, *numbers) in enumerate(told):
        mine = [row for row in hits if row["probe"] == f"in{number}" and low < row["time"] < high]
        reached, lost, values = map(int, numbers)
        assert (len(mine), ways[f"in{number}"], lost) == (reached, "jump", 0), (name, offset)
        total = sum(row["values"]["v"] for row in mine)
        assert (total - values) % (1 << 64) == 0, (name, offset)
    assert sum(int(reached) for _, _, reached, *_ in told) > MADE
    assert counted["do_mkdirat"].returned == 2 + 4 * MADE
    assert counted["hrtimer_nanosleep"].missed == SLEEPERS - MAXACTIVE["hrtimer_nanosleep"]
    _fetched(hits, low, high)
    assert "WARNING" not in console and "BUG" not in console


def test_a_probe_of_a_panic_has_its_values(traceable: Vmlinux) -> None:
    """Recording stops there without one."""
    _kernel(traceable)
    command = [sys.executable, "-m", "ftpatch", "boot", str(traceable.path), "--json"]
    command += ["--probe", "p:end panic said=+0($arg1):string"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    said = [row["values"]["said"] for row in rows if "values" in row]
    assert len(said) == 1 and said[0].startswith("VFS: Unable to mount root fs"), done.stderr


def _fetched(hits: list[dict[str, Any]], low: int, high: int) -> None:
    """What user space passed, and what the kernel had."""
    made = [row["values"] for row in hits if row["probe"] == "mk" and low < row["time"] < high]
    expected = {f"/{one}{number}" for one in "abcd" for number in range(MADE)} | {"/twice"}
    assert {row["name"] for row in made} == {row["also"] for row in made} == expected
    assert {row["mode"] for row in made} == {"0x1ff"}
    inside = [row for row in hits if low < _begin(row) < high]
    for most in (row["values"] for row in hits if row["probe"] == "most"):
        assert most["seven"] == 7 and most["most"] == POSSIBLE and most["bad"] is None
    returned = [row["values"]["low"] for row in inside if row["probe"] == "do_mkdirat_r"]
    assert [value for value in returned if value] == [-EEXIST]


def _begin(row: dict[str, Any]) -> int:
    """When it began; a hit on entry took no time."""
    return int(row["time"] - row.get("duration", 0))
