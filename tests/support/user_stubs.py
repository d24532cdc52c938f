# SPDX-License-Identifier: MIT
"""Users' stubs and programs for them, compiled for every architecture."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from ftpatch.arch import arch_named
from ftpatch.layout import structure
from tests.support.command import ftpatch
from tests.support.cross_root import CROSS, use_cross_root
from tests.support.tracer_programs import ARCHES, LINKS, SOURCES, emulator

__all__ = [
    "CALLER",
    "EMPTY",
    "HEAD",
    "OWN_FLAGS",
    "PROGRAM",
    "RETURN",
    "SAYS",
    "STUBS",
    "compiled_program",
    "compiled_stub",
    "functions_of",
    "outcome",
    "shown",
    "told_words",
]

STUBS = SOURCES / "stubs"
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
struct pair { long first, second; };
struct wide { long of[9]; };
__attribute__((noipa)) long many(int a, long b, short c, char *d, unsigned long e, int f, long g,
	int h, long i)
{
	return a + b + c + *d + (long)e + f + g + h + i;
}
__attribute__((noipa)) struct pair both(long a, long b) { return (struct pair){b, a}; }
__attribute__((noipa)) struct wide all(long a) { return (struct wide){{a, a + 1, a + 2}}; }
__attribute__((noipa)) double half(double of, int n) { return of / 2 + n; }
__attribute__((noipa)) int less(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}
__attribute__((noipa)) int fib(int n)
{
	if (n < 2)
		return n;
	int a = fib(n - 1);
	return a + fib(n - 2);
}
int main(void)
{
	int numbers[] = {5, 2, 9, -1};
	char c = 3;

	printf("%ld\n", many(1, -2, 3, &c, 1ul << 31, 6, -7, 8, 9));
	struct pair pair = both(-1, 1l << 30);
	printf("%ld %ld %ld\n", pair.first, pair.second, all(7).of[1]);
	printf("%g\n", half(3.5, 2));
	qsort(numbers, 4, sizeof(int), less);
	printf("%d %d\n", numbers[0], fib(5));
	return 0;
}
"""
OWN_FLAGS = {
    "loongarch64": ("-mabi=lp64s",),
    "ppc64le": ("-msoft-float", "-mno-vsx", "-mno-altivec"),
    "riscv64": ("-march=rv64ima", "-mabi=lp64"),
    "s390x": ("-march=z10", "-msoft-float"),
}
"""In place of -mgeneral-regs-only, which gcc has not on each architecture."""
HEAD = "#include <ftrace_regs.h>\n"
CALLER = "void ftrace_regs_caller(struct fgraph_call *call, struct ftrace_regs *regs)\n"
RETURN = "void ftrace_regs_return(struct fgraph_call *call, struct ftrace_regs *regs)\n"
EMPTY = "{ (void)call; (void)regs; }\n"
SAYS = r"""
#include "said.h"
static void words(const unsigned long long *words, int n)
{
	said(9, words, n * 8ul);
}
"""


def compiled_stub(
    arch: str, source: Path | str, folder: Path, *flags: str, name: str = "own"
) -> Path:
    """Compile a stub as users do, by the flags that ftpatch tells."""
    if arch in CROSS:
        use_cross_root(arch)
    compiler, out = ARCHES[arch].gcc, folder / f"{name}.elf"
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    if isinstance(source, str):
        path = folder / f"{name}.c"
        path.write_text(source)
        source = path
    told = ftpatch("--cflags").out.split()
    if arch in OWN_FLAGS:
        told = [word for word in told if word != "-mgeneral-regs-only"] + [*OWN_FLAGS[arch]]
    command = [
        compiler,
        "-Wall",
        "-Werror",
        *told,
        f"-I{STUBS}",
        *flags,
        str(source),
        "-o",
        str(out),
    ]
    subprocess.run(command, check=True)
    return out


def compiled_program(
    arch: str,
    folder: Path,
    *flags: str,
    text: str = PROGRAM,
    name: str = "prog",
    link: str = "static",
) -> Path:
    """Compile a program with pads."""
    if arch in CROSS:
        use_cross_root(arch)
    made, path = ARCHES[arch], folder / name
    if shutil.which(made.gcc) is None:
        pytest.skip(f"no {made.gcc}")
    (folder / f"{name}.c").write_text(text)
    words = [made.gcc, *made.flags, made.pad, "-O1", "-w", "-g", *LINKS[link], *flags, f"{path}.c"]
    subprocess.run([*words, "-o", path], check=True)
    return path


def outcome(path: Path, arch: str, *words: str) -> tuple[int, str]:
    """Exit code, and what is printed."""
    command = [*emulator(arch), str(path), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def functions_of(path: Path) -> dict[str, int]:
    """Link addresses of symbols, by name; without what says that a function is in Thumb."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        table: Any = elf.get_section_by_name(".symtab")
        known = {one.name: one["st_value"] for one in table.iter_symbols()}
        marked = elf["e_machine"] == "EM_ARM"
        return {name: at & ~marked for name, at in known.items()}


def shown(raw: bytes, arch: str) -> NDArray[np.void]:
    """The records of shows.c."""
    parts = [("kind", "<u8"), *((n, structure(n, arch)) for n in ("fgraph_call", "ftrace_regs"))]
    return np.frombuffer(raw, arch_named(arch).order.record(np.dtype(parts)))


def told_words(path: Path, arch: str, folder: Path, *words: str) -> list[int]:
    """Run a program whose stub writes 64-bit words to descriptor 9."""
    out = folder / "words"
    command = ["sh", "-c", 'exec 9>"$0" "$@"', str(out), *emulator(arch), str(path), *words]
    subprocess.run(command, check=True, capture_output=True)
    held: list[int] = arch_named(arch).order.unsigned(out.read_bytes(), 8).tolist()
    return held
