# SPDX-License-Identifier: MIT
"""Functions of libraries in reports of watches and probes: LIBRARY+OFFSET, which nm knows, also of
a library that is opened later."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.watch_programs import refusal, run_watched

LIBRARY = "void into(int *at, int value) { *(volatile int *)at = value; }\n"
SOURCE = """
#include <dlfcn.h>
#include <string.h>
int counter;
extern void into(int *, int);
__attribute__((noinline)) void called(int n) { __asm__ volatile(""); }
int main(int argc, char **argv)
{
	void (*later)(int *, int) = dlsym(dlopen(argv[1], RTLD_NOW), "into");

	into(&counter, 1);
	later(&counter, 2);
	called(counter);
	return 0;
}
"""


def _program(folder: Path) -> Path:
    (folder / "lib.c").write_text(LIBRARY)
    (folder / "main.c").write_text(SOURCE)
    for name in ("linked", "opened"):
        shared = ["gcc", "-O1", "-fPIC", "-shared", str(folder / "lib.c")]
        subprocess.run([*shared, "-o", str(folder / f"lib{name}.so")], check=True)
    command = ["gcc", "-O1", str(folder / "main.c"), "-o", str(folder / "main"), f"-L{folder}"]
    subprocess.run([*command, "-llinked", f"-Wl,-rpath,{folder}"], check=True)
    return folder / "main"


def _span(library: Path) -> tuple[int, int]:
    """Of its function, as nm says it."""
    done = subprocess.run(["nm", "-S", str(library)], capture_output=True, text=True, check=True)
    (row,) = (line.split() for line in done.stdout.splitlines() if line.endswith(" into"))
    return int(row[0], 16), int(row[0], 16) + int(row[1], 16)


def test_accesses_of_libraries(tmp_path: Path) -> None:
    if refusal():
        pytest.skip(refusal())
    program, patched = _program(tmp_path), tmp_path / "patched"
    assert ftpatch("watch", program, "counter:-w-", "-o", patched).code == 0
    done, trace = run_watched(patched, str(tmp_path / "libopened.so"))
    assert done.returncode == 0
    rows = [row for row in ftpatch("report", trace, "--json").json if "access" in row]
    names = [row["function"] for row in rows]
    assert len(names) == 2
    for name, library in zip(names, ("liblinked.so", "libopened.so"), strict=True):
        found = re.fullmatch(r"([\w.]+)\+0x([0-9a-f]+)", name)
        assert found and found[1] == library
        start, end = _span(tmp_path / library)
        assert start < int(found[2], 16) <= end
        assert name in ftpatch("report", trace).out


def test_callers_in_libraries(tmp_path: Path) -> None:
    """What qsort() calls back, of a program that is probed."""
    source, program, patched = tmp_path / "a.c", tmp_path / "a", tmp_path / "patched"
    source.write_text(
        "#include <stdlib.h>\n"
        "int less(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }\n"
        "int main(void) { int n[] = {2, 1}; qsort(n, 2, sizeof(int), less); return n[0] - 1; }\n"
    )
    subprocess.run(["gcc", "-O1", str(source), "-o", str(program)], check=True)
    assert ftpatch("probe", program, "r:cmp less", "-o", patched).code == 0
    trace = tmp_path / "t"
    subprocess.run([str(patched)], check=True, env={"FTPATCH_TRACE": str(trace)})
    assert re.search(r"cmp: \(libc\.so\.6\+0x[0-9a-f]+ <- less\)", ftpatch("report", trace).out)
