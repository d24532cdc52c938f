# SPDX-License-Identifier: MIT
"""Exceptions, cancelled threads and backtraces that pass calls which ``r`` probes follow in a
process: the program compares what comes of them with what it knows (tests/programs/walks.cc)."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.busy import ours_in, taken_out
from tests.support.command import child_env, ftpatch, ftpatch_command
from tests.support.sampling import scaled

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
SOURCE = Path(__file__).parent.parent / "programs" / "walks.cc"
FORMS = {
    "shared": (),
    "now": ("-Wl,-z,now", "-no-pie", "-fno-pie"),
    "static-libgcc": ("-static-libgcc", "-static-libstdc++"),
}
CALLED = ["leaf", "down", "caught", "rethrown", "nested", "nothing", "look", "look_deep"]
PROBES = [f"r:{name} {name}" for name in CALLED]
PROBES += [f"r:{name} libthrough.so:{name}" for name in ("through_library", "library_leaf")]
PROBES += ["r:sorted libc.so.6:qsort", "p:calls leaf n=$arg1:s64"]

CALLBACK = r"""
#include <cstdio>
#include <cstdlib>
static int calls;
static int compared(const void *one, const void *other)
{
	if (++calls == 3)
		throw calls;
	return *(const int *)one - *(const int *)other;
}
int main()
{
	for (int i = 0; i < 5; i++) {
		int items[] = {5, 4, 3, 2, 1};

		try {
			calls = i * 10;
			qsort(items, 5, sizeof(*items), compared);
			std::printf("%d\n", items[0]);
		} catch (int at) {
			std::printf("left at %d\n", at);
		}
	}
}
"""


def _walks(folder: Path, *flags: str) -> Path:
    """Compile it to FOLDER/walks, with its library."""
    words = ["g++", "-O1", "-rdynamic", str(SOURCE)]
    library = folder / "libthrough.so"
    soname = "-Wl,-soname,libthrough.so"
    subprocess.run([*words, "-DLIBRARY", "-shared", "-fpic", soname, "-o", library], check=True)
    path = folder / "walks"
    rpath = f"-Wl,-rpath,{folder}"
    subprocess.run([*words, library, rpath, *flags, "-o", path, "-pthread"], check=True)
    return path


@pytest.mark.scaled
@pytest.mark.parametrize("form", FORMS)
def test_walks_pass_probed_returns(tmp_path: Path, form: str) -> None:
    path, pipe = _walks(tmp_path, *FORMS[form]), subprocess.PIPE
    with subprocess.Popen([path], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        pid = ("--pid", str(program.pid))
        for number in range(scaled(4, 2, 40)):
            trace = tmp_path / f"{number}.trace"
            said = ftpatch("probe", *pid, *PROBES, "--keep", "-o", trace)
            assert said.code == 0, said.err
            time.sleep(0.1)  # for some walks; more come while the probes are taken out
            taken_out(program.pid)
            assert ours_in(program.pid) == []
            told = ftpatch("report", trace)
            rows = [line.split() for line in told.out.splitlines() if line.startswith("# ")]
            hits = {row[1]: int(row[3]) for row in rows if len(row) == 5 and row[3].isdigit()}
            assert told.code == 0 and hits["caught"] and hits["nothing"], (
                told
            )  # what throws has no return
        checked = ftpatch("check", *pid)
        assert checked.code == 0, checked.out
        rest, _ = program.communicate()
    assert (program.returncode, rest) == (0, "0 errors\n")


def test_an_exception_through_a_library_that_does_not_throw(tmp_path: Path) -> None:
    """libc's qsort() calls what throws."""
    program = tmp_path / "callback"
    words = ["g++", "-O1", "-x", "c++", "-", "-o", str(program)]
    subprocess.run(words, input=CALLBACK.encode(), check=True)
    alone = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert "left at 3\n" in alone and "1\n" in alone
    probes = ("r:sorted libc.so.6:qsort", "r:inner libc.so.6:qsort_r", "r main")
    said = subprocess.run(
        ftpatch_command("probe", *probes, "--json", "-o", tmp_path / "t", "-c", program),
        env=child_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith(alone)
    assert f'"probe": "sorted", "way": "jump", "hits": {alone.count("1")}' in said.stdout
