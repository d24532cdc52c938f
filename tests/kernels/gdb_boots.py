# SPDX-License-Identifier: MIT
"""Boots of untouched kernels that a script in gdb watches: QEMU's own breakpoints and watchpoints
change nothing in the guest."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .boot_oracle import ALIKE, SAME
from .independent import Vmlinux
from .qemu import APPEND, MACHINES, need, raw_image

__all__ = ["GDB", "LIMIT", "seen_by_gdb"]

GDB = "gdb-multiarch"
LIMIT = 600  # seconds; it takes 10 to 20
# gdb sees registers of 64 bits in the other one.
PROGRAMS = {"i386": ("qemu-system-i386", "-cpu", "qemu64")}
SCRIPT = """
import gdb, json
words = json.load(open({words!r}))
mask = (1 << words["bits"]) - 1
gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set endian little")  # ppc64le's machine is not, before the kernel is
gdb.execute("set remotetimeout 60")  # a busy machine answers late
def connect():
    gdb.execute("target remote | exec " + words["machine"])
out = open({out!r}, "w")
def tell(row):
    out.write(json.dumps(row) + "\\n")
{script}
tell("end")
out.close()
gdb.execute("kill")
"""


def seen_by_gdb(
    image: Vmlinux, scratch: Path, script: str, words: Mapping[str, object], *more: str
) -> list[Any]:
    """What a script tells, in order. It has ``words``, a ``mask`` of an address's bits, and the
    functions ``connect()`` to a machine that has not begun (``more`` words for it), and
    ``tell(row)``."""
    folder = scratch / f"{image.path.parent.name}.gdb"
    folder.mkdir()
    out, held, code = folder / "out", folder / "words", folder / "script.py"
    program, *other = PROGRAMS.get(image.arch, MACHINES[image.arch][:1])
    for name in (GDB, program):
        need(name)
    with raw_image(image.path, image.arch, folder) as kernel:
        bare = [word for word in MACHINES[image.arch][1:] if word not in ("-serial", "stdio")]
        machine = [program, *other, *bare, *ALIKE.get(image.arch, ()), *SAME, *more]
        machine += ["-gdb", "stdio", "-S"]
        machine += ["-kernel", str(kernel), "-append", f"{APPEND[image.arch]} nokaslr"]
        held.write_text(json.dumps({**words, "machine": shlex.join(machine), "bits": image.bits}))
        code.write_text(SCRIPT.format(words=str(held), out=str(out), script=script))
        said = _run([GDB, "-nx", "-batch", "-x", str(code)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows and rows.pop() == "end", said  # gdb ends well where a script has failed
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return rows


def _run(command: list[str]) -> str:
    """gdb, and the QEMU that it starts; what they say."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as gdb:  # fmt: skip
        timer = threading.Timer(LIMIT, os.killpg, (gdb.pid, signal.SIGKILL))
        timer.start()
        try:
            said, _ = gdb.communicate()
        finally:
            timer.cancel()
    assert gdb.returncode == 0, said
    return said
