# SPDX-License-Identifier: MIT
"""Probes printed for kprobe_events: does the kernel take them, list the same lines, and record what
they ask for? And for a bootconfig: does its own parser read them?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .apt import FetchError
from .bootconfig import parser
from .cli import RUN_LIMIT
from .fetch import find_kernel
from .guest import run_steps
from .independent import Vmlinux
from .trees import Tree, ensure_tree

PROBED = ("x86_64", "arm64")
REGISTER = {"x86_64": "%rdi", "arm64": "%x0"}
"""Of the first argument, by the manual's name."""
PROBES = (
    "p:open do_sys_openat2 dfd=$arg1:s32 name=+u0($arg2):ustring",
    "p:also do_sys_openat2 dfd={register}:s32 task=$comm n=\\-7:s8",
    "r7:mk do_mkdirat ret=$retval:s32",
    "r9:shared {shared}",
    "p:own/here {address} most=@pid_max:u32 same=@{pid_max}:u32",
)
EEXIST = 17
STEPS = {
    "laid": "while read -r one; do echo \"$one\" >> /t/kprobe_events; echo \"wrote $?\"; done "
    "< /probes; sed 's/^/lists /' /t/kprobe_events",
    "used": "for one in kprobes/open kprobes/also kprobes/mk kprobes/shared own/here; do "
    "echo 1 > /t/events/$one/enable; echo \"enabled $?\"; done; "
    "mkdir /made; mkdir /made; cat /proc/sys/kernel/pid_max > /tmp/most; "
    "echo 0 > /t/tracing_on; echo \"most $(cat /tmp/most)\"; sed 's/^/row /' /t/trace",
}  # fmt: skip


def _printed(image: Path, option: str, *probes: str) -> list[str]:
    command = [sys.executable, "-m", "ftpatch", "probe", str(image), option, *probes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _shared(image: Vmlinux) -> int:
    """A function whose name another one has, too; kprobe_events refuses one without a site."""
    done = subprocess.run(["nm", image.path], capture_output=True, text=True, check=True)
    found = [line.split() for line in done.stdout.splitlines()]
    names = Counter(name for _, kind, name in found if kind == "t")
    traced = {ip - before for ip in image.sites.tolist() for before in (0, 4, 8)}
    functions = (int(at, 16) for at, kind, name in found if kind == "t" and names[name] == 2)
    return next(at for at in functions if at in traced)


def _installed(image: Vmlinux) -> Tree:
    if image.arch not in PROBED:
        pytest.skip(f"no probes on {image.arch}")
    kernel = find_kernel(image.path)
    try:
        return ensure_tree(kernel)
    except FetchError as error:
        pytest.skip(str(error))


def test_the_kernel_takes_them(sampled: Vmlinux, tmp_path: Path) -> None:
    """KASLR is on: addresses have become symbols and offsets."""
    tree = _installed(sampled)
    words = {
        "register": REGISTER[sampled.arch],
        "address": hex(sampled.address("do_mkdirat")),
        "shared": hex(_shared(sampled)),
        "pid_max": hex(sampled.address("pid_max")),
    }
    lines = _printed(sampled.path, "--print-events", *(one.format(**words) for one in PROBES))
    assert len(lines) == len(PROBES)
    files = {"probes": "".join(f"{line}\n" for line in lines).encode()}
    steps = run_steps(tree, tmp_path, files, STEPS)
    laid, used = steps["laid"], steps["used"]
    assert laid.values("wrote") == ["0"] * len(PROBES), laid.said
    assert laid.values("lists") == lines
    assert used.values("enabled") == ["0"] * len(PROBES)
    assert not used.warnings
    rows = used.values("row")
    assert [row for row in rows if " open: " in row and 'dfd=-100 name="/proc/sys' in row], rows
    also = [row for row in rows if " also: " in row]
    assert also and all('dfd=-100 task="' in row and row.endswith("n=-7") for row in also), rows
    returned = [re.search(r"ret=(\S+)", row) for row in rows if " mk: " in row]
    assert [found and int(found[1]) for found in returned] == [0, -EEXIST]
    here = [row for row in rows if " here: " in row]
    most = used.value("most")
    assert len(here) == 2 and all(f"most={most} same={most}" in row for row in here), rows


def test_bootconfig_reads_them(sampled: Vmlinux, tmp_path: Path) -> None:
    """The parser is the kernel's own, as its tool has it."""
    if sampled.arch not in PROBED:
        pytest.skip(f"no probes on {sampled.arch}")
    try:
        tool = parser()
    except FetchError as error:
        pytest.skip(str(error))
    probes = ("p:open do_sys_openat2 dfd=$arg1:s32 path=+u0($arg2):ustring", "r:mk do_mkdirat")
    lines = _printed(sampled.path, "--print-bootconfig", *probes)
    path = tmp_path / "bootconfig"
    path.write_text("\n".join(lines) + "\n")
    done = subprocess.run([tool, "-l", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    opened = "do_sys_openat2 dfd=$arg1:s32 path=+u0($arg2):ustring"
    assert [line.rstrip(";") for line in done.stdout.splitlines()] == [
        f'ftrace.event.kprobes.open.probes = "{opened}"',
        'ftrace.event.kprobes.open.enable = ""',
        'ftrace.event.kprobes.mk.probes = "do_mkdirat%return"',
        'ftrace.event.kprobes.mk.enable = ""',
    ]
