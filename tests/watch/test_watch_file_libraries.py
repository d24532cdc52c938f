# SPDX-License-Identifier: MIT
"""Variables of libraries that a program loads, watched in its file: gdb counts the same, with the
same breakpoints of the processor."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch
from tests.support.watch_gdb import accesses_by_gdb
from tests.support.watch_programs import refusal, run_watched

LIBRARY = """
volatile int total = 5, spare, table[8];
static volatile long hidden;
__thread int local;
__attribute__((constructor)) static void begin(void) { total = 1; }
void bump(int n) { for (int i = 0; i < n; i++) { total++; spare = i; hidden += 2; } }
int count(void) { return total; }
"""
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
void bump(int);
int count(void);
volatile int own;
#ifdef COPIED
extern volatile int total;
#endif
int main(int argc, char **argv)
{
	bump(4);
	own = count();
#ifdef COPIED
	total = 100;
#endif
	bump(2);
	if (argc > 1 && !fork()) {
		bump(3);
		exit(0);
	}
	wait(0);
	printf("%d %d\\n", count(), own);
	return 0;
}
"""
WATCHES = ("libown.so:total:rw-", "w@libown.so:hidden:8", "own:-w-")


@pytest.fixture(autouse=True)
def _can_watch() -> None:
    if refusal():
        pytest.skip(refusal())


def _library(folder: Path, *flags: str, source: str = LIBRARY, name: str = "libown.so") -> Path:
    (folder / "lib.c").write_text(source)
    words = ["gcc", "-O1", "-g", "-w", "-fPIC", "-shared", f"-Wl,-soname,{name}", *flags, "lib.c"]
    subprocess.run([*words, "-o", name], cwd=folder, check=True)
    return folder / name


def _program(folder: Path, *flags: str) -> Path:
    (folder / "main.c").write_text(PROGRAM)
    words = ["gcc", "-O1", "-g", "-w", *flags, "main.c", "./libown.so", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*words, "-o", "prog"], cwd=folder, check=True)
    return folder / "prog"


def _watched(program: Path, *watches: str) -> Path:
    target = program.with_name("patched")
    done = ftpatch("watch", program, *watches, "-o", target, "--force")
    assert done.code == 0, done.err
    return target


def _rows(*traces: Path) -> list[dict[str, object]]:
    done = ftpatch("report", *traces, "--json", "--no-children")
    assert done.code == 0, done.err
    return [row for row in done.json if "access" in row]


@pytest.mark.parametrize("bound", ["", "-Wl,-Bsymbolic"])
@pytest.mark.parametrize("copied", [True, False])
def test_gdb_counts_the_same(copied: bool, bound: str, tmp_path: Path) -> None:
    """Of a variable that the program has a copy of, the accesses are those to the copy, unless the
    library is bound to its own."""
    _library(tmp_path, *bound.split())
    program = _program(tmp_path, *(["-DCOPIED", "-no-pie", "-fno-pie"] if copied else ["-pie"]))
    plain, _ = run_watched(program)
    whose = "&'lib.c'::total" if copied and bound else "total"
    places = [(whose.removeprefix("&"), 0, 4, True), ("hidden", 0, 8, True)]
    by_gdb = accesses_by_gdb(program, (), places)
    patched = _watched(program, "libown.so:total:rw-", "rw@libown.so:hidden:8")
    done, trace = run_watched(patched)
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    got = Counter(str(row["symbol"]) for row in _rows(trace))
    wanted = Counter[str]()
    for (number, _), hits in by_gdb.items():
        wanted[f"libown.so:{('total', 'hidden')[number]}"] += hits
    if not (copied and bound):  # gdb takes the copy for the library's
        assert got["libown.so:total"] == wanted["libown.so:total"]
    assert got["libown.so:hidden"] == wanted["libown.so:hidden"] == 12
    reads_and_writes = 6 * 2 + 2 + (copied and not bound)
    assert got["libown.so:total"] == reads_and_writes


def test_each_command_is_undone_by_itself(tmp_path: Path) -> None:
    """Watches of program and library come and go; a child's are in its own file."""
    library = _library(tmp_path)
    program = _program(tmp_path)
    patched = _watched(program, *WATCHES)
    assert ftpatch("watch", patched).out.splitlines() == [
        *WATCHES[:1],
        "libown.so:hidden:-w-",
        "own:-w-",
    ]
    first = patched.read_bytes()
    change = ("libown.so:hidden:---", f"{library}:spare:-w- if new > 1")
    done = ftpatch("watch", patched, *change, "--in-place")
    assert done.code == 0, done.err
    lines = ["libown.so:total:rw-", "own:-w-", "libown.so:spare:-w- if new > 1"]
    assert ftpatch("watch", patched).out.splitlines() == lines
    ran, trace = run_watched(patched, "fork")
    assert ran.returncode == 0
    (child,) = tmp_path.glob("t.*")
    counts = Counter(str(row["symbol"]) for row in _rows(trace))
    assert counts == {"libown.so:total": 14, "own": 1, "libown.so:spare": 2}
    assert Counter(str(row["symbol"]) for row in _rows(child)) == {
        "libown.so:total": 6,
        "libown.so:spare": 1,
    }
    assert ftpatch("undo", patched).code == 0 and patched.read_bytes() == first
    assert ftpatch("undo", patched).code == 0 and patched.read_bytes() == program.read_bytes()


def test_what_takes_its_place_is_watched(tmp_path: Path) -> None:
    """A library that is preloaded has a variable of that name, which the linker finds first."""
    _library(tmp_path)
    program = _program(tmp_path)
    other = _library(tmp_path, name="libother.so", source="volatile int total = 1000;")
    patched = _watched(program, "libown.so:total:-w-")
    place = tmp_path / "preloaded"
    env = os.environ | {"FTPATCH_TRACE": str(place), "LD_PRELOAD": str(other)}
    done = subprocess.run([patched], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "7 5\n"  # its constructor has written there
    assert [row["new"] for row in _rows(place)] == [hex(n) for n in (2, 3, 4, 5, 6, 7)]


def test_beside_a_tracer_and_probes(tmp_path: Path) -> None:
    _library(tmp_path)
    program = _program(tmp_path, "-fpatchable-function-entry=5")
    patched = _watched(program, *WATCHES)
    alone = _rows(run_watched(patched)[1])
    for words in (
        ("enable", patched, "--tracer", "function_graph"),
        ("probe", patched, "p:begun main"),
        ("watch", patched, "own:---"),
    ):
        done = ftpatch(*words, "--in-place")
        assert done.code == 0, done.err
    _, trace = run_watched(patched, trace="both")

    def told(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
        names = ("symbol", "access", "old", "new")
        return [tuple(row[name] for name in names) for row in rows if row["symbol"] != "own"]

    assert told(_rows(trace)) == told(alone) and len(told(alone)) == 20


@pytest.mark.parametrize("id", ["--build-id", "--build-id=none"])
def test_another_library_in_its_place(id: str, tmp_path: Path) -> None:
    """It is not watched, the program runs, and the report says so."""
    _library(tmp_path, f"-Wl,{id}")
    program = _program(tmp_path)
    patched = _watched(program, *WATCHES)
    assert len(_rows(run_watched(patched)[1])) == 21
    other = LIBRARY.replace("5, spare", "5, more[9], spare").replace("+= 2", "+= 3")
    _library(tmp_path, f"-Wl,{id}", source=other + "int further(int n) { return n * count(); }\n")
    done, trace = run_watched(patched, trace="other")
    assert done.stdout == b"7 5\n" and done.returncode == 0
    assert {row["symbol"] for row in _rows(trace)} == {"own"}
    said = ftpatch("report", trace)
    assert "libown.so:total:rw-: not watched" in said.out + said.err
    assert "is another one than when it was watched" in said.out + said.err
    assert ftpatch("watch", patched).code == 0  # lists them


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "libwon.so:total:rw-",
            "it loads no library 'libwon.so' when it starts; did you mean libown.so",
        ),
        ("libown.so:totl:rw-", "libown.so: totl: no such symbol; did you mean total?"),
        ("libown.so:bump:rw-", "libown.so: bump: a function, not a variable"),
        ("libown.so:local:rw-", "libown.so: local: thread-local"),
        ("libown.so:table+32:rw-", "the offset is beyond the symbol"),
        ("libown.so:total:---", "no such watch to clear"),
    ],
)
def test_what_cannot_be(text: str, reason: str, tmp_path: Path) -> None:
    _library(tmp_path)
    said = _refused(_program(tmp_path), text)
    assert reason in said.err


def test_a_static_program_loads_none(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int total; int main(void) { return total; }\n")
    subprocess.run(["gcc", "-static", "a.c", "-o", "a"], cwd=tmp_path, check=True)
    assert "it loads no library" in _refused(tmp_path / "a", "libc.so.6:environ:rw-").err


def _refused(program: Path, text: str) -> Result:
    said = ftpatch("watch", program, text, "-o", program.with_name("out"))
    assert said.code == 2 and said.err.count("\n") == 1
    assert not program.with_name("out").exists()
    return said
