# SPDX-License-Identifier: MIT
"""Boot a vmlinux under QEMU, without KVM, up to the panic for want of a root file system.

The kernel is the judge of what was done to its file: it says how many ftrace records it took, and
prints an ftrace bug for a site that it refuses. Nothing but the console's words is looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.cross_root import use_cross_root
from tests.support.gnu import PREFIXES

__all__ = [
    "APPEND", "BOXED", "CRAMPED", "MACHINES", "OBJCOPY", "PREFIX",
    "TROUBLE", "Console", "FtraceBug", "boot",
    "kaslr_choices",
    "need", "normal", "raw_image", "read_console", "run_machine", "run_qemu", "two_processors",
]  # fmt: skip

BOOT_LIMIT = 300  # seconds; a boot takes 1 to 3 here, 15 on a slow machine
# The end that every boot must reach: no root file system was given.
ROOT_PANIC = "Kernel panic - not syncing: VFS: Unable to mount root fs"
END = "Kernel panic - not syncing"
BUG, INIT_END = "[ ftrace bug ]", "ftrace: allocated "
# No network card, no display: what ROMs and drivers of those would do takes a third of the time.
BARE = ["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot", "-m", "1G"]
PC = ["qemu-system-x86_64", *BARE]
# Functions sign their return address behind the site; QEMU's own signature is three times as fast
# to emulate as the architecture's.
VIRT = ["qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on", *BARE]
RISCV = ["qemu-system-riscv64", "-M", "virt", *BARE]
ZVM = ["qemu-system-s390x", "-M", "s390-ccw-virtio", *BARE]
ARM = ["qemu-system-arm", "-M", "virt", *BARE]
LOONGARCH = ["qemu-system-loongarch64", "-M", "virt", *BARE]  # of cross_root.py
PSERIES = ["qemu-system-ppc64", "-M", "pseries,x-vof=on", *BARE]  # without the firmware's seconds
MACHINES = {"x86_64": PC, "i386": PC, "arm64": VIRT, "riscv64": RISCV, "s390x": ZVM,
            "ppc64le": PSERIES, "arm": ARM, "loongarch64": LOONGARCH}  # fmt: skip
PREFIX = {arch: prefixes[0] for arch, prefixes in PREFIXES.items()}
"""Of the names of GNU's tools."""
OBJCOPY = {arch: f"{PREFIX[arch]}objcopy" for arch in ("arm64", "riscv64")}
"""QEMU takes the raw Image of these, and x86's vmlinux for its PVH note; ppc64le's as it is."""
BOXED = ("s390x",)
"""A vmlinux of these runs behind its decompressor only (ipl.py)."""
MOVED = {"s390x": 0x3FF_E000_0000}
"""Bytes from where these are linked to where they run without KASLR (CONFIG_KERNEL_IMAGE_BASE)."""
STARTED = ("arm",)
"""A vmlinux of these gets the start that a decompressor gives it (loader.py)."""
CRAMPED = ("s390x",)
"""Their installed kernels have no room for the changes of all their sites."""
# x86 checks its timer against others, which fails where the host is busy.
APPEND = {
    "x86_64": "console=ttyS0 earlyprintk=serial panic=-1 no_timer_check",
    "i386": "console=ttyS0 earlyprintk=serial panic=-1 no_timer_check",
    "arm64": "console=ttyAMA0 earlycon panic=-1",
    "riscv64": "console=ttyS0 earlycon panic=-1",
    "s390x": "console=ttysclp0 earlyprintk panic=-1",
    "ppc64le": "console=hvc0 panic=-1",
    "arm": "console=ttyAMA0 earlycon panic=-1",
    # There is no keyboard controller: looking for one is an oops.
    "loongarch64": "console=ttyS0 earlycon panic=-1 initcall_blacklist=i8042_init",
}

STAMP = re.compile(r"^\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? ")
SITE = re.compile(r"^\[<(?P<address>[0-9a-f]+)>\] (?P<symbol>\S+)")
TROUBLE = re.compile(r"WARNING: |\bBUG: |Oops|Unable to handle|general protection|Internal error")


@dataclass(frozen=True)
class FtraceBug:
    """What ftrace_bug printed, word for word, where there is such a line."""

    kind: str  # "ftrace failed to modify", "ftrace faulted on writing", ...
    address: int
    symbol: str  # "vfs_read+0x0/0x310"
    actual: str  # bytes "0f:1f:44:00:00"; empty where no line says it
    expected: str
    type: str  # "Initializing ftrace call sites"


@dataclass(frozen=True)
class Console:
    """A boot, as its console tells it."""

    text: str
    reached_panic: bool  # the panic for want of a root file system
    allocating: int | None  # N of "ftrace: allocating N entries"
    ftrace_bug: FtraceBug | None
    warnings: frozenset[str]  # headlines, without what differs from boot to boot

    def linked_bug(self, arch: str) -> FtraceBug | None:
        """The bug of a boot without KASLR, with the address that the file has for its place."""
        bug = self.ftrace_bug
        return bug and replace(bug, address=(bug.address - MOVED.get(arch, 0)) % 2**64)

    @property
    def tail(self) -> str:
        return "\n".join(self.text.splitlines()[-30:])


def boot(
    vmlinux: Path,
    arch: str,
    scratch: Path,
    *words: str | Path,
    kaslr: bool = False,
    bug_ends: bool = False,
) -> Console:
    """Boot until the first panic, or, where ``bug_ends``, until ftrace_init has printed a bug.

    ``arch`` is ftpatch's word; a raw image goes into ``scratch``. ``words``
    are further ones for QEMU.
    """
    append = APPEND[arch] + ("" if kaslr else " nokaslr")
    with raw_image(vmlinux, arch, scratch) as image:
        return read_console(run_machine(arch, image, append, END, *words, bug_ends=bug_ends))


@contextmanager
def raw_image(vmlinux: Path, arch: str, scratch: Path) -> Iterator[Path]:
    """What QEMU takes: the vmlinux, or the raw image that objcopy makes of it, in ``scratch``."""
    if arch in BOXED:
        from .fetch import kernels
        from .ipl import boxed
        from .trees import ARCHES, ensure_tree

        need(f"{PREFIX[arch]}objcopy")
        metas = ((one, one.meta.arch) for one in kernels() if one.meta is not None)
        kernel = next((k for k, name in metas if ARCHES.get(name, name) == arch), None)
        if kernel is None:
            pytest.skip(f"no installed kernel of {arch}, whose decompressor starts this one")
        with boxed(vmlinux, ensure_tree(kernel).vmlinuz, scratch) as image:
            yield image
        return
    if arch in STARTED:
        from .loader import started

        with started(vmlinux, scratch) as image:
            yield image
        return
    if arch not in OBJCOPY:
        yield vmlinux
        return
    need(OBJCOPY[arch])
    image = scratch / f"{vmlinux.name}.Image"
    command = [OBJCOPY[arch], "-O", "binary", "-S", str(vmlinux), str(image)]
    subprocess.run(command, check=True, timeout=BOOT_LIMIT)
    try:
        yield image
    finally:
        image.unlink()


def need(program: str) -> None:
    """Skip the test without a program; on CI, fail it."""
    if shutil.which(program) is None:
        reason = f"{program} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def kaslr_choices(arch: str) -> tuple[bool, ...]:
    """x86's KASLR is the decompressor's, which a bare vmlinux does without; s390x's too, but there
    a vmlinux has it."""
    return (False, True) if arch == "arm64" or arch in BOXED else (False,)


def two_processors(arch: str) -> tuple[str, ...]:
    """QEMU's words for a machine of two processors: a thread each, but on x86 one for both.

    QEMU 7.2 translates code before it write-protects the page (tb_gen_code), and so misses what
    another thread writes there in between. An int3 of text_poke_bp then stays in the translation:
    2 of 120 boots of an untouched 6.12 oopsed. arm64 patches whole instructions."""
    return ("-smp", "2", *(() if arch == "arm64" else ("-accel", "tcg,thread=single")))


def run_machine(
    arch: str,
    image: Path,
    append: str,
    until: str,
    *words: str | Path,
    bug_ends: bool = False,
    limit: int = BOOT_LIMIT,
) -> str:
    """What a kernel prints, up to the line that holds ``until``."""
    command = [*MACHINES[arch], "-kernel", image, "-append", append, *words]
    return run_qemu(command, until, bug_ends=bug_ends, limit=limit)


def run_qemu(
    command: Sequence[str | Path], until: str, *, bug_ends: bool = False, limit: int = BOOT_LIMIT
) -> str:
    """What comes out of a machine's serial port, up to the line that holds ``until``."""
    if "loongarch64" in str(command[0]):
        use_cross_root("loongarch64")
    need(str(command[0]))
    lines, bug_seen = [], False
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as machine:  # fmt: skip
        timer = threading.Timer(limit, machine.kill)
        timer.start()
        try:
            assert machine.stdout is not None
            for line in machine.stdout:
                lines.append(line)
                bug_seen = bug_seen or BUG in line
                if until in line or (bug_ends and bug_seen and INIT_END in line):
                    break
        finally:
            timer.cancel()
            machine.kill()
    return "".join(lines)


def read_console(text: str) -> Console:
    """Take a console's text apart."""
    lines = [STAMP.sub("", line.rstrip("\r\n")) for line in text.split("\n")]
    count = re.search(r"ftrace: allocating (\d+) entries", text)
    return Console(
        text=text,
        reached_panic=ROOT_PANIC in text,
        allocating=int(count[1]) if count else None,
        ftrace_bug=_bug(lines),
        warnings=frozenset(normal(line) for line in lines if TROUBLE.search(line)),
    )


def _bug(lines: list[str]) -> FtraceBug | None:
    starts = [number for number, line in enumerate(lines) if BUG in line]
    if not starts:
        return None
    kind = address = symbol = actual = expected = type_line = ""
    for line in lines[starts[0] + 1 : starts[0] + 60]:  # a WARNING's own block may lie between
        site = SITE.match(line)
        if not kind and line.startswith("ftrace "):
            kind = line.strip()
        elif site and not address:
            address, symbol = site["address"], site["symbol"]
        elif line.startswith(" actual:"):
            actual = line.split()[1]
        elif line.startswith(" expected:"):
            expected = line.split()[1]
        elif kind and not type_line and re.match(r"(Initializing|Setting|Updating|Unknown) ", line):
            type_line = line
    return FtraceBug(kind, int(address or "0", 16), symbol, actual, expected, type_line)


def normal(line: str) -> str:
    """Without CPU, process, address and offset: what two boots of one kernel have in common."""
    line = re.sub(r"\b(CPU|PID): ?\d+", r"\1", line)
    line = re.sub(r"(\+0x[0-9a-f]+)?/0x[0-9a-f]+", "", line)
    return re.sub(r"\b(0x)?[0-9a-f]{8,16}\b", "ADDR", line)
