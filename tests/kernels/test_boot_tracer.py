# SPDX-License-Identifier: MIT
"""Kernels that trace themselves from their first function on boot as they did before."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .apt import Archive, files_of
from .cli import RUN_LIMIT, ftpatch
from .fetch import FetchError, find_kernel
from .independent import Vmlinux
from .qemu import Console, boot, kaslr_choices, need, two_processors
from .trees import ensure_tree

SEMIHOSTING = (
    *("-chardev", "file,id=events,path={}"),
    *("-semihosting-config", "enable=on,target=native,chardev=events"),
)
WORDS = {
    "x86_64": ("-debugcon", "file:{}"),
    "i386": ("-debugcon", "file:{}"),
    "arm64": SEMIHOSTING,
    "riscv64": SEMIHOSTING,
    "ppc64le": (
        *("-chardev", "file,id=events,path={}"),
        *("-device", "spapr-vty,chardev=events,reg=0x710000f0"),
    ),
}
FIRST = "start_kernel"
BEFORE = {"ppc64le": "early_setup"}
"""What comes sooner where more events than are recorded come before that."""
MOST = 20000
DOOMED = "rcu_init"
BARE = ("-nodefaults", "-display", "none", "-no-reboot", "-m", "1G")


def _report(stream: Path, image: Path) -> list[dict[str, object]]:
    words = ["report", str(stream), "--image", str(image), "--json"]
    command = [sys.executable, "-m", "ftpatch", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_sites_boot(
    traceable: Vmlinux, untouched: Callable[[Vmlinux, bool], Console], tmp_path: Path
) -> None:
    path = tmp_path / "vmlinux.boot"
    said = ftpatch("enable", traceable.path, "--tracer", "boot", "--max", str(MOST), "-o", path).one
    assert said["changed"] == said["dropped"] == len(traceable.sites)
    for kaslr in kaslr_choices(traceable.arch):
        stream = tmp_path / f"stream{kaslr}"
        words = [word.format(stream) for word in WORDS[traceable.arch]]
        seen = boot(path, traceable.arch, tmp_path, *words, kaslr=kaslr)
        plain = untouched(traceable, kaslr)
        assert seen.reached_panic, seen.tail
        assert seen.ftrace_bug is None, seen.ftrace_bug
        assert seen.warnings <= plain.warnings, seen.warnings - plain.warnings
        rows = _report(stream, path)
        entries = [row for row in rows if row["event"] == "entry"]
        assert len(entries) == MOST
        first = BEFORE.get(traceable.arch, FIRST)
        start = next(row for row in entries if row["function"] == first)
        assert start["depth"] in (0, 1)  # x86 may have a traced caller
        inner = [row for row in entries if row["tid"] == start["tid"] and row["depth"]]
        assert len(inner) > MOST / 2
        stream.unlink()
    path.unlink()


def test_until_is_the_last_event(traceable: Vmlinux, tmp_path: Path) -> None:
    path, stream = tmp_path / "vmlinux.boot", tmp_path / "stream"
    ftpatch(
        "enable", traceable.path, "--tracer", "boot", "-f", "*init*", "--until", "vfs_caches_init",
        "-o", path,
    )  # fmt: skip
    words = [word.format(stream) for word in WORDS[traceable.arch]]
    seen = boot(path, traceable.arch, tmp_path, *words)
    assert seen.reached_panic, seen.tail
    entries = [row for row in _report(stream, path) if row["event"] == "entry"]
    assert entries[-1]["function"] == "vfs_caches_init"
    assert len(entries) > 20
    path.unlink()


def _boot(image: Path, *words: str) -> tuple[str, list[str]]:
    """What `ftpatch boot` tells of the end, and the functions that were entered."""
    command = [sys.executable, "-m", "ftpatch", "boot", str(image), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return done.stderr, [row["function"] for row in rows if row["event"] == "entry"]


def test_a_triple_fault_tells_the_last_functions(traceable: Vmlinux, tmp_path: Path) -> None:
    if traceable.arch in ("arm64", "riscv64", "ppc64le"):
        pytest.skip("a triple fault is x86's")
    need("qemu-system-x86_64")
    entry = traceable.address(DOOMED)
    at = traceable.offset(int(min(ip for ip in traceable.sites.tolist() if ip >= entry))) + 5
    path = tmp_path / "vmlinux"
    with path.open("wb") as file:
        file.write(traceable.data[:at].data)
        # push 0; push 0; lidt [sp]; int3: there is no handler for it, nor for that
        file.write(bytes.fromhex("6a006a000f011c24cc"))
        file.write(traceable.data[file.tell() :].data)
    said, functions = _boot(path, "-f", "*init*")
    path.unlink()
    assert "triple fault" in said
    assert functions[-1] == DOOMED
    assert f", {DOOMED}\n" in said


def test_an_installed_kernel_is_traced(traceable: Vmlinux) -> None:
    """A bzImage, or an Image that is signed: by what it has of kallsyms."""
    try:
        installed = ensure_tree(find_kernel(traceable.path))
    except FetchError as error:
        pytest.skip(str(error))
    said, functions = _boot(installed.kernel, "-f", "*init*", "-f", FIRST)
    if traceable.arch == "i386":  # its kallsyms have no data
        assert "no padding in its data" in said and said.startswith(f"ftpatch: {installed.kernel}:")
        return
    assert "given no root file system" in said
    assert FIRST in functions and functions[-1] in ("panic", "vpanic")
    assert "last functions: " in said and functions[-1] in said


def test_two_processors_cut_few_events(traceable: Vmlinux) -> None:
    words = ("-f", "rcu_*", "-f", "tick_*", "-f", "*idle*", "--", *two_processors(traceable.arch))
    said, functions = _boot(traceable.path, *words)
    assert "Kernel Offset" in said or "panic" in said or "Memory Limit" in said, said
    assert functions[-1] in ("panic", "vpanic")
    cut = re.search(r"(\d+) bytes outside of any event", said)
    assert int(cut[1]) < len(functions) / 10 if cut else True, said


def test_a_16550_of_its_own_and_one_with_the_console(traceable: Vmlinux, tmp_path: Path) -> None:
    if traceable.arch in ("arm64", "riscv64", "ppc64le"):
        pytest.skip("the serial sink is x86's")
    said, _ = _boot(traceable.path, "--sink", "serial", "--max", "2000", "--time")
    assert "2000 events; tracer stopped" in said and "outside" not in said
    path, stream = tmp_path / "vmlinux.boot", tmp_path / "stream"
    words = ("--sink", "serial", "--max", "20000")
    ftpatch("enable", traceable.path, "--tracer", "boot", *words, "-o", path)
    command = ["qemu-system-x86_64", *BARE, "-serial", f"file:{stream}", "-kernel", str(path)]
    append = "console=ttyS0 earlyprintk=serial panic=-1 no_timer_check"
    subprocess.run([*command, "-append", append], check=True, timeout=RUN_LIMIT)
    path_rows = _report(stream, path)
    assert b"Unable to mount root fs" in stream.read_bytes()
    assert sum(row["event"] == "entry" for row in path_rows) == 20000
    path.unlink()


@pytest.mark.parametrize("firmware", ["own", "newer"])
def test_the_firmwares_console_has_the_kernels_words_and_the_events(
    traceable: Vmlinux, firmware: str, tmp_path: Path
) -> None:
    """By calls of before SBI 2.0 in QEMU's own firmware, by the debug console in a newer one."""
    if traceable.arch != "riscv64":
        pytest.skip("the firmware's console is riscv64's")
    words, keep = ("-f", "*init*", "--max", "2000"), tmp_path / "kept"
    machine = ["--", "-bios", "default" if firmware == "own" else str(_opensbi(tmp_path))]
    _, expected = _boot(traceable.path, *words, *machine)
    said, functions = _boot(traceable.path, *words, "--sink", "sbi", "--keep", str(keep), *machine)
    assert "2000 events; tracer stopped" in said
    assert functions == expected
    console = (keep / "console").read_bytes()
    text = bytes(one for one in console if one < 0x80 and one != 1).decode()
    assert ("DBCN extension detected" in text) == (firmware == "newer")
    assert re.search(r"^\[ +0\.0+\] Linux version \S+ \(.*\) #\d+ SMP .*$", text, re.MULTILINE)
    shutil.rmtree(keep)


def _opensbi(scratch: Path) -> Path:
    """OpenSBI of a newer suite."""
    try:
        package = Archive("riscv64", "trixie").download("opensbi", scratch)
        for name, content in files_of(package):
            if name.endswith("riscv64-linux-gnu/opensbi/generic/fw_dynamic.bin"):
                (scratch / "fw_dynamic.bin").write_bytes(content.read())
                return scratch / "fw_dynamic.bin"
    except FetchError as error:
        pytest.skip(str(error))
    raise AssertionError(f"{package} has no firmware")
