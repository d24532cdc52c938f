# SPDX-License-Identifier: MIT
"""Who accesses a variable, by gdb's own watchpoints on an untouched kernel."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from .boot_frames import GDB, PROGRAMS, run_gdb
from .boot_oracle import SAME
from .independent import Vmlinux
from .qemu import APPEND, MACHINES, need, raw_image

__all__ = ["watched_by_gdb"]

# Runs inside gdb. It has no symbols: the architecture is what the machine says.
SCRIPT = """
import gdb, json
words = json.load(open({words!r}))
gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set can-use-hw-watchpoints 8")
gdb.execute("target remote | exec " + words["machine"])
mask = (1 << words["bits"]) - 1
found = []
class Access(gdb.Breakpoint):
    def __init__(self, name, at):
        text = "*(unsigned int *) %#x" % at
        super().__init__(text, gdb.BP_WATCHPOINT, gdb.WP_ACCESS, internal=True)
        self.name_, self.at = name, at
    def stop(self):
        held = gdb.selected_inferior().read_memory(self.at, 4)
        value = int.from_bytes(bytes(held), "little")
        found.append([self.name_, gdb.newest_frame().pc() & mask, value])
        return len(found) == words["most"]
for name, at in words["at"].items():
    Access(name, at)
gdb.execute("continue", to_string=True)
json.dump(found, open(words["out"], "w"))
gdb.execute("kill")
"""


def watched_by_gdb(
    image: Vmlinux, scratch: Path, at: Mapping[str, int], most: int
) -> list[tuple[str, int, int]]:
    """The first ``most`` accesses to variables of four bytes: the name, where the instruction ends,
    and the value then."""
    folder = scratch / f"{image.path.parent.name}.watched"
    folder.mkdir()
    out, script = folder / "out", folder / "script.py"
    program, *more = PROGRAMS.get(image.arch, MACHINES[image.arch][:1])
    for name in (GDB, program):
        need(name)
    append = f"{APPEND[image.arch]} nokaslr"
    with raw_image(image.path, image.arch, folder) as kernel:
        bare = [word for word in MACHINES[image.arch][1:] if word not in ("-serial", "stdio")]
        machine = [program, *more, *bare, *SAME, "-gdb", "stdio", "-S"]
        machine += ["-kernel", str(kernel), "-append", append]
        words = {
            "machine": shlex.join(machine), "at": dict(at), "most": most, "out": str(out),
            "bits": image.bits,
        }  # fmt: skip
        (folder / "words").write_text(json.dumps(words))
        script.write_text(SCRIPT.format(words=str(folder / "words")))
        run_gdb([GDB, "-nx", "-batch", "-x", str(script)])
    rows = json.loads(out.read_text())
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return [(name, pc, value) for name, pc, value in rows]
