# SPDX-License-Identifier: MIT
"""Probes in a kernel on disk: do they count what the kernel's own kretprobes count in the same
boot, and fetch what user space has passed?"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .apt import FetchError
from .built_modules import build_modules
from .cli import RUN_LIMIT
from .fetch import Kernel, kernels
from .guest import cpio
from .independent import Vmlinux
from .trees import ensure_tree

ARCHES = ("x86_64", "arm64")
MAXACTIVE = {"do_mkdirat": 16, "do_sys_openat2": 16, "hrtimer_nanosleep": 2}
SLEEPERS, MADE = 5, 20
INIT = f"""#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc p /proc; mount -t devtmpfs d /dev
insmod /kretprobed.ko names={",".join(MAXACTIVE)} most={",".join(map(str, MAXACTIVE.values()))}
rmdir /begin
mkdir /twice; mkdir /twice
for one in a b c d; do
    (i=0; while [ $i -lt {MADE} ]; do mkdir /$one$i; i=$((i+1)); done) &
done
for one in {" ".join(map(str, range(SLEEPERS)))}; do sleep 2 & done
wait
rmdir /end
rmmod kretprobed
reboot -f
"""
PROBES = (
    "p:rm do_rmdir dfd=$arg1:s32 name=+0(+0($arg2)):string",
    "p:mk do_mkdirat name=+u0(+8($arg2)):ustring also=+0(+0($arg2)):string mode=$arg3:x16",
    *(
        f"r{most}:{name}_r {name} ret=$retval:s64 low=$retval:s32"
        for name, most in MAXACTIVE.items()
    ),
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
    files = {"init": INIT.encode(), "bin/busybox": busybox, "kretprobed.ko": module}
    initrd.write_bytes(cpio(files | {"proc/.keep": b""}))
    hole = hex(traceable.address("_text") - HOLE)
    words = [word for one in PROBES for word in ("--probe", one.format(hole=hole))]
    command = [sys.executable, "-m", "ftpatch", "boot", str(traceable.path), "--json", *words]
    command += ["--keep", str(keep), "--", "-initrd", str(initrd), "-smp", "2"]
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
    assert counted.keys() == MAXACTIVE.keys(), console[-2000:]
    missed = {row["probe"]: row["missed"] for row in rows if "missed" in row}
    for name, said in counted.items():
        mine = [row for row in hits if row["probe"] == f"{name}_r" and low < _begin(row) < high]
        assert len(mine) == said.returned, name
        assert sum(row["values"]["ret"] for row in mine) == said.values, name
        assert missed[f"{name}_r"] == said.missed, name
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
