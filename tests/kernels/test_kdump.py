# SPDX-License-Identifier: MIT
"""A kernel that reads itself by /proc/kcore, crashes, and is dumped by kdump.

Its root file system is this machine's own, read-only and by 9p, so ftpatch and kexec run in the
guest as they are installed here:

    Debian's kernel                          crash kernel
    ftpatch ... --core /proc/kcore
    tracer, kprobe on; the same again
    kexec -p; echo c > sysrq-trigger   ->    /proc/vmcore, makedumpfile -> a disk -> this machine
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.sampling import FULL

from . import fetch
from .apt import FetchError
from .cli import ftpatch
from .initramfs import ensure_initramfs
from .qemu import MACHINES, need, run_qemu
from .trees import ensure_tree

pytest.importorskip("drgn")
NAME = "6.1-amd64"
LIMIT = 900  # seconds; two boots, and a dump of all memory
MODULES = ("9p", "9pnet_virtio", "virtio_pci", "virtio_blk", "ext4")
ROOT = "root=host rootfstype=9p rootflags=trans=virtio,version=9p2000.L,msize=512000,cache=loose ro"
APPEND = f"console=ttyS0 no_timer_check oops=panic panic=-1 {ROOT} init={{script}}"
END = "@@ end"
PROBED, FILTER = "do_sys_openat2", "vfs_*"
# Run by the kernel, and again by the crash kernel, whose /tmp it needs to write to.
SCRIPT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
mount -t tracefs t /sys/kernel/tracing
mount -t tmpfs r /run
mount -t ext4 /dev/vda /mnt
if [ -e /proc/vmcore ]; then
    mount -t tmpfs t /tmp
    cp --sparse=always /proc/vmcore /mnt/elf
    makedumpfile -c -d 31 /proc/vmcore /mnt/zlib
    umount /mnt
    echo '{end}'
    sleep 60
fi
look() {{
    {python} -m ftpatch $2 {vmlinux} --core /proc/kcore --json >/mnt/$1.$2 2>>/mnt/errors
    echo $? >/mnt/$1.$2.code
}}
look clean status
look clean check
cd /sys/kernel/tracing
echo '{filter}' >set_ftrace_filter; echo function >current_tracer
echo 'p:probe {probed}' >kprobe_events; echo 1 >events/kprobes/enable
cat enabled_functions >/mnt/enabled
look traced list
look traced check
kexec -p {vmlinuz} --initrd={initrd} --append='{append} nr_cpus=1 reset_devices'
sync
umount /mnt
echo c >/proc/sysrq-trigger
"""


@dataclass(frozen=True)
class Crashed:
    """What the guest left on its disk."""

    folder: Path
    vmlinux: Path

    def answer(self, step: str, verb: str) -> tuple[int, list[dict[str, Any]]]:
        code = int((self.folder / f"{step}.{verb}.code").read_text())
        assert code < 2, (self.folder / "errors").read_text()
        lines = (self.folder / f"{step}.{verb}").read_text().splitlines()
        return code, [json.loads(line) for line in lines]

    def enabled(self) -> set[str]:
        return {line.split()[0] for line in (self.folder / "enabled").read_text().splitlines()}


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashed]:
    """Boot, and let it crash."""
    if not FULL:
        pytest.skip("set FTPATCH_FULL=1")
    if os.uname().machine != "x86_64":
        pytest.skip("the guest runs this machine's programs")
    for program in ("kexec", "makedumpfile", "mkinitramfs", "mke2fs", "debugfs"):
        need(program)
    kernel = next((one for one in fetch.kernels() if one.name == NAME), None)
    if kernel is None:
        pytest.skip(f"without {NAME}")
    try:
        symbols, tree = fetch.ensure(kernel), ensure_tree(kernel)
        initrd = ensure_initramfs(kernel, *MODULES)
    except FetchError as error:
        pytest.skip(str(error))
    scratch = tmp_path_factory.mktemp("kdump")
    script, vmlinux, disk = (scratch / name for name in ("init", "vmlinux", "disk"))
    subprocess.run(["objcopy", "--strip-debug", symbols, vmlinux], check=True)
    append = APPEND.format(script=script)
    script.write_text(
        SCRIPT.format(
            end=END,
            filter=FILTER,
            probed=PROBED,
            append=append,
            vmlinux=vmlinux,
            vmlinuz=tree.vmlinuz,
            initrd=initrd,
            python=shlex.quote(sys.executable),
        )
    )
    script.chmod(0o755)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", disk, "2G"], check=True, capture_output=True)
    words: list[str | Path] = [word for word in MACHINES["x86_64"] if word != "-no-reboot"]
    words += ["-cpu", "max", "-kernel", tree.vmlinuz, "-initrd", initrd]
    words += ["-append", f"{append} crashkernel=320M"]
    words += ["-drive", f"if=virtio,format=raw,file={disk}", "-virtfs"]
    words += ["local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]
    text = run_qemu(words, END, limit=LIMIT)
    assert END in text, "\n".join(text.splitlines()[-40:])
    left = scratch / "left"
    left.mkdir()
    subprocess.run(["debugfs", "-R", f"rdump / {left}", disk], check=True, capture_output=True)
    disk.unlink()
    yield Crashed(left, vmlinux)
    for path in left.iterdir():
        if path.is_file():
            path.unlink()


def test_a_kernel_finds_nothing_in_itself(crashed: Crashed) -> None:
    assert crashed.answer("clean", "check") == (0, [])
    (status,) = crashed.answer("clean", "status")[1]
    assert status["states"] == {"nop": status["sites"], "call": 0, "unexpected": 0}
    assert status["sites"] > 30_000


def _calls(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {row["symbol"]: row["ops"] for row in rows if row["state"] == "call"}


def _finds_the_probe_alone(rows: list[dict[str, Any]]) -> None:
    """A note; tracing is nothing to find."""
    (note,) = rows
    assert note["invariant"] is None and note["note"] == "kprobe"
    assert [site["symbol"] for site in note["sites"]] == [f"{PROBED}+0x0"]


def test_it_sees_the_tracer_and_the_probe_that_run(crashed: Crashed) -> None:
    calls = _calls(crashed.answer("traced", "list")[1])
    assert calls.keys() == crashed.enabled() and len(calls) > 50
    assert calls[PROBED] == ["kprobe_ftrace_handler"]
    assert {"function_trace_call"} == {
        one for name in calls.keys() - {PROBED} for one in calls[name]
    }
    _finds_the_probe_alone(crashed.answer("traced", "check")[1])


@pytest.mark.parametrize("form", ["elf", "zlib"])
def test_kdump_has_what_ran_when_it_crashed(crashed: Crashed, form: str) -> None:
    core = crashed.folder / form
    assert core.stat().st_size > 1 << 20
    rows = ftpatch("list", crashed.vmlinux, "--core", core).objects
    assert _calls(rows) == _calls(crashed.answer("traced", "list")[1])
    _finds_the_probe_alone(ftpatch("check", crashed.vmlinux, "--core", core).objects)
