# SPDX-License-Identifier: MIT
"""Run commands in a kernel of its own: an initramfs of busybox, a console, and steps.

What a step prints and what the kernel logs meanwhile are kept apart: the log is taken by dmesg. A
boot that may die has no dmesg any more. There the steps speak by /dev/kmsg: a record of the log
never stands in the midst of another, and what two write to one serial port does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .qemu import STAMP, TROUBLE, FtraceBug, normal, read_console, run_machine
from .trees import Tree

__all__ = ["Step", "run_steps"]

APPEND = {
    "x86_64": "console=ttyS0 no_timer_check",
    "i386": "console=ttyS0 no_timer_check",
    "arm64": "console=ttyAMA0",
    "riscv64": "console=ttyS0",
    "s390x": "console=ttysclp0",
    "ppc64le": "console=hvc0",
    "arm": "console=ttyAMA0",
    "loongarch64": "console=ttyS0 initcall_blacklist=i8042_init",
}
LIMIT = 600  # seconds; a boot with all its steps takes 5 to 15
STEP, SAID, LOG, END = "@@ step ", "@@ said ", "@@ log ", "@@ end"
SAY = f"""
record() {{ echo "$1" >/dev/kmsg; }}
say() {{ while IFS= read -r line; do record "{SAID}$line"; done; }}
"""
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /t /tmp
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev; mount -t tracefs t /t
exec >/dev/console 2>&1 </dev/null
dmesg -c >/dev/null
"""


@dataclass
class Step:
    """What became of some commands."""

    said: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    died: bool = False  # neither this step nor the boot came to its end

    def values(self, word: str) -> list[str]:
        """What follows a word at the beginning of a line, for each such line."""
        return [line[len(word) + 1 :] for line in self.said if line.startswith(f"{word} ")]

    def value(self, word: str) -> str:
        (only,) = self.values(word)
        return only

    @property
    def ftrace_bug(self) -> FtraceBug | None:
        return read_console("\n".join(self.log)).ftrace_bug

    @property
    def warnings(self) -> set[str]:
        """Headlines, without what differs from boot to boot."""
        return {normal(line) for line in self.log if TROUBLE.search(line)}


def run_steps(
    tree: Tree,
    scratch: Path,
    files: dict[str, bytes],
    steps: dict[str, str],
    helpers: str = "",
    append: str = "",
    may_die: bool = False,
    machine: Sequence[str | Path] = (),
) -> dict[str, Step]:
    """Boot, run each step's shell commands in turn, and tell what each came to.

    ``files`` are laid in by their paths; ``helpers`` are shell functions for all steps. A boot that
    dies has no steps after that in which it did, and fails the test unless it ``may_die``.
    ``machine`` are further words for QEMU.
    """
    script = [INIT, f"dmesg -n {8 if may_die else 1}", SAY, helpers]
    for name, commands in steps.items():
        if may_die:
            script += [f"record '{STEP}{name}'", "{", commands, "} 2>&1 | say"]
        else:
            script += [f"echo '{STEP}{name}'", commands, f"dmesg -c | sed 's/^/{LOG}/'"]
    script += [f"record '{END}'" if may_die else f"echo '{END}'", "sleep 60"]
    made = {"init": ("\n".join(script) + "\n").encode(), "bin/busybox": tree.busybox.read_bytes()}
    initrd = scratch / f"{tree.name}.initrd"
    initrd.write_bytes(cpio(made | files))
    words = f"{APPEND[tree.arch]} panic=-1 oops=panic loglevel=1 printk.devkmsg=on {append}"
    more = ["-initrd", initrd, *machine]
    text = run_machine(tree.arch, tree.kernel, words, END, *more, limit=LIMIT)
    initrd.unlink()
    assert may_die or END in text, "\n".join(text.splitlines()[-30:])
    found = _recorded(text) if may_die else _told(text)
    assert list(found) == list(steps)[: len(found)] and found, "\n".join(text.splitlines()[-30:])
    next(reversed(found.values())).died = END not in text
    return found


def _told(console: str) -> dict[str, Step]:
    """Steps of a boot whose console has what they print, and their log behind it."""
    found: dict[str, Step] = {}
    for line in console.splitlines():
        if STEP in line:  # behind what the firmware printed
            found[line.partition(STEP)[2].strip()] = step = Step()
        elif found and line.startswith(LOG):
            step.log.append(STAMP.sub("", line.removeprefix(LOG)))
        elif found:
            step.said.append(line.rstrip())
    return found


def _recorded(console: str) -> dict[str, Step]:
    """Steps of a boot whose console has the log, and in it what they print."""
    found: dict[str, Step] = {}
    for line in console.splitlines():
        text, stamps = STAMP.subn("", line.rstrip())
        if not found and STEP in text:  # behind what the firmware printed
            text = text[text.index(STEP) :]
        if text.startswith(STEP):
            found[text.removeprefix(STEP)] = step = Step()
        elif found and text.startswith(SAID):
            step.said.append(text.removeprefix(SAID))
        elif found and stamps and not text.startswith(END):
            step.log.append(text)
    return found


def cpio(files: dict[str, bytes]) -> bytes:
    """An archive of the "newc" form, as buffer-format.rst of the kernel's documentation has it."""
    folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    device = 0x5 << 32 | 0x1  # /dev/console: 5, 1
    entries = [(name, 0o40755, b"", 0) for name in sorted({*folders, "dev"})]
    entries.append(("dev/console", 0o20600, b"", device))
    entries += [(name, 0o100755, data, 0) for name, data in files.items()]
    out = bytearray()
    for number, (name, mode, data, rdev) in enumerate([*entries, ("TRAILER!!!", 0, b"", 0)]):
        words = (number, mode, 0, 0, 1, 0, len(data), 0, 0, rdev >> 32, rdev & 0xFFFFFFFF)
        head = "070701" + "".join(f"{word:08X}" for word in (*words, len(name) + 1, 0))
        for part in (head.encode() + name.encode() + b"\0", data):
            out += part + bytes(-len(part) % 4)
    return bytes(out)
