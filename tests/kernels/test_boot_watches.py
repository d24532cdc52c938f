# SPDX-License-Identifier: MIT
"""Who reads and writes a kernel's variable while it boots: what gdb says of the untouched kernel,
and what user space does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from .apt import FetchError
from .boot_oracle import SAME
from .cli import RUN_LIMIT
from .fetch import find_kernel
from .gdb_boots import GDB
from .gdb_watches import watched_by_gdb
from .guest import cpio
from .independent import Vmlinux
from .qemu import need
from .trees import ensure_tree

VARIABLES = ("pid_max", "nr_threads")
"""An int that is mostly read, and one that is counted up and down."""
MEMBERS = ("init_pid_ns.pid_allocated", "init_pid_ns.level")
"""Those of a variable that only debug information knows by name."""
BEFORE = ("arm64", "riscv64")
"""Where the machine stops before an access."""
FIRST = 60
CALLED = ("alloc_pid", "pid_idr_init")
"""They read pid_max, and have a site."""
WRITTEN = 0x5432
INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc; /bin/busybox mount -t proc p /proc
echo {WRITTEN} > /proc/sys/kernel/pid_max
/bin/busybox cat /proc/sys/kernel/pid_max
/bin/busybox reboot -f
"""


def _watched(
    image: Vmlinux, *words: str, variables: Sequence[str] = VARIABLES
) -> tuple[list[dict[str, Any]], str]:
    watches = [word for name in variables for word in ("--watch", f"{name}:rw-")]
    command = [sys.executable, "-m", "ftpatch", "boot", str(image.path), "--json", *watches]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=RUN_LIMIT)
    assert done.returncode in (0, 124), done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row for row in rows if "access" in row], done.stderr


@pytest.mark.parametrize("variables", [VARIABLES, MEMBERS], ids=["variables", "members"])
def test_accesses_are_those_of_a_debugger(
    traceable: Vmlinux, scratch: Path, variables: Sequence[str]
) -> None:
    """Place and value of the first ones, in their order."""
    at = _addresses(traceable, variables)
    rows, _ = _watched(traceable, "-f", "alloc_pid", "--", *SAME, variables=variables)
    said = [(row["symbol"], int(row["new"], 16)) for row in rows[:FIRST]]
    seen = watched_by_gdb(traceable, scratch, at, FIRST)
    assert said == [(name, value) for name, _, value in seen]
    for row, (_, pc, _) in zip(rows, seen, strict=False):
        assert pc in _behind(traceable, row["ip"])
    assert {name for name, _ in said} == set(variables)
    for name in variables:
        mine = [row for row in rows if row["symbol"] == name]
        assert all(one["new"] == two["old"] for one, two in pairwise(mine))
        assert all("w" in row["access"] for row in mine if row["old"] != row["new"])


def _behind(image: Vmlinux, ip: str) -> tuple[int, ...]:
    """The address behind an access, by which gdb tells it. On ppc64le that is where it comes to by
    one more instruction, which it takes for the access."""
    at = int(ip, 16)
    code = image.data[image.offset(at) :][:4].tobytes()
    if image.arch == "ppc64le":
        word = int.from_bytes(code, "little")
        bits = {18: 26, 16: 16}.get(word >> 26, 0)  # of a branch's distance: b, bc
        if not bits:
            return (at + 4,)
        distance = word & (1 << bits) - 4
        there = at + distance - (1 << bits if distance >> bits - 1 else 0)
        return (there,) if bits == 26 else (there, at + 4)
    if image.arch not in BEFORE:
        return (at,)
    return (at + int(next(image.disassembler.disasm(code, at, 1)).size),)


def _addresses(image: Vmlinux, variables: Sequence[str]) -> dict[str, int]:
    """Those of members are gdb's."""
    if variables is VARIABLES:
        return {name: image.address(name) for name in variables}
    need(GDB)
    asked = [word for name in variables for word in ("-ex", f"output/x (long)&{name}")]
    command = [GDB, "-nx", "-batch", *asked, str(image.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    found = [int(word, 16) for word in done.stdout.split("0x")[1:]]
    if len(found) < len(variables):
        pytest.skip(f"no debug information: {done.stderr.strip()}")
    return dict(zip(variables, found, strict=True))


def test_they_stand_among_the_calls(traceable: Vmlinux, tmp_path: Path) -> None:
    """The function of an access is the one that was called last."""
    keep = tmp_path / "kept"
    words = [word for name in CALLED for word in ("-f", name)]
    rows, _ = _watched(traceable, "--keep", str(keep), *words)
    command = [sys.executable, "-m", "ftpatch", "report", str(keep / "stream"), "--json"]
    command += ["--image", str(keep / "vmlinux.boot"), "-f", CALLED[0], "-f", CALLED[1]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    entered = {row["time"]: row["function"] for row in calls if row["event"] == "entry"}
    seen = 0
    for row in rows:
        function = row["function"].partition("+")[0]
        if row["symbol"] == VARIABLES[0] and function in CALLED:
            assert entered[row["time"] - 1] == function
            seen += 1
    assert seen > FIRST / 2
    (keep / "vmlinux.boot").unlink()


def test_a_kernel_without_a_symbol_table(traceable: Vmlinux) -> None:
    """By its own kallsyms, which have variables if it was built so."""
    if traceable.arch != "x86_64":
        pytest.skip("not every kernel's kallsyms have variables")
    kernel = find_kernel(traceable.path)
    try:
        stripped = ensure_tree(kernel).kernel
    except FetchError as error:
        pytest.skip(str(error))
    seen = []
    for path in (stripped, traceable.path):
        command = [sys.executable, "-m", "ftpatch", "boot", str(path), "--json"]
        command += ["--watch", "pid_max:rw-", "-f", "alloc_pid", "--until", "kernel_init_freeable"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        places = [(row["ip"], row["function"].split("/")[0]) for row in rows if "access" in row]
        seen.append(list(dict.fromkeys(places)))
    assert seen[0] == seen[1]
    assert len(seen[0]) > 2


def test_user_space_writes_one(traceable: Vmlinux, tmp_path: Path) -> None:
    """By sysctl; the rest of the boot leaves it alone."""
    kernel = find_kernel(traceable.path)
    try:
        busybox = ensure_tree(kernel).busybox.read_bytes()
    except FetchError as error:
        pytest.skip(str(error))
    initrd, keep = tmp_path / "initrd", tmp_path / "kept"
    initrd.write_bytes(cpio({"init": INIT.encode(), "bin/busybox": busybox}))
    rows, _ = _watched(
        traceable, "-f", "alloc_pid", "--keep", str(keep), "--", "-initrd", str(initrd)
    )
    changes = [row for row in rows if row["symbol"] == VARIABLES[0] and row["old"] != row["new"]]
    assert [int(row["new"], 16) for row in changes] == [WRITTEN]
    assert "proc_" in changes[0]["function"] and changes[0]["access"] == "w"
    assert f"{WRITTEN}" in (keep / "console").read_text("utf-8", "replace")
    (keep / "vmlinux.boot").unlink()
