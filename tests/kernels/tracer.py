# SPDX-License-Identifier: MIT
"""A tracer in a module of its own: Debian's ifb with tracer.S linked in, which exports count_calls.

What a kernel asks of a module (its struct module, its vermagic, the versions of what it imports) is
Debian's; so no headers and no compiler of that kernel are needed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.cross_root import CROSS, use_cross_root

from .qemu import PREFIX, need
from .trees import Tree

__all__ = ["CALLEE", "loader_program", "tracer_module"]

CALLEE = "count_calls"
HERE = Path(__file__).parent
# Has the kernel itself unpack a module: busybox's insmod would do it before.
LOADER = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDONLY);
    if (argc != 2 || syscall(SYS_finit_module, fd, "", 4 /* MODULE_INIT_COMPRESSED_FILE */)) {
        perror(argv[0]);
        return 1;
    }
    return 0;
}
"""


# As the kernel: no floats, nothing to relax.
FLAGS = {"riscv64": ["-march=rv64imac", "-mabi=lp64", "-mno-relax"],
         "loongarch64": ["-mabi=lp64s", "-mno-relax"]}  # fmt: skip


def _run(*words: str | Path, stdin: str | None = None) -> None:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def tracer_module(tree: Tree, scratch: Path) -> bytes:
    """ifb.ko with the tracer in it, without a signature."""
    if tree.arch in CROSS:
        use_cross_root(tree.arch)
    prefix = PREFIX[tree.arch]
    need(f"{prefix}gcc")
    base, code, out = (scratch / f"{tree.name}-{name}" for name in ("ifb.ko", "code.o", "out.ko"))
    base.write_bytes(tree.module("ifb"))
    _run(f"{prefix}gcc", "-c", "-fno-pic", *FLAGS.get(tree.arch, []), HERE / "tracer.S", "-o", code)
    _run(f"{prefix}ld", "-r", base, code, "-o", out)
    return out.read_bytes()


def loader_program(tree: Tree, scratch: Path) -> bytes:
    """A program that loads the compressed module it is given."""
    if tree.arch in CROSS:
        use_cross_root(tree.arch)
    prefix = PREFIX[tree.arch]
    need(f"{prefix}gcc")
    out = scratch / f"{tree.name}-loader"
    _run(f"{prefix}gcc", "-static", "-O1", "-x", "c", "-", "-o", out, stdin=LOADER)
    return out.read_bytes()
