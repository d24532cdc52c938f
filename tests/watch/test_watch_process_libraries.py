# SPDX-License-Identifier: MIT
"""Variables of a running process's libraries: each access that the library counts is recorded."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ftpatch.errors import UsageError
from ftpatch.watch import Watch, parse_watch, watch_line
from tests.support.command import ftpatch
from tests.support.watch_live import accesses, cannot, watching

LIBRARY = """
volatile int counter = 7, spare, table[8];
static volatile long hidden;
void bump(int n) { for (int i = 0; i < n; i++) { counter++; spare = i; hidden += 2; } }
int count(void) { return counter; }
"""
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int count(void);
volatile int counter;
int main(int argc, char **argv)
{
	void (*bump)(int) = dlsym(dlopen(argv[1], RTLD_NOW), "bump");
	int n;

	puts("ready");
	fflush(stdout);
	while (scanf("%d", &n) == 1) {
		bump(n);
		counter++;
		printf("%d\\n", n);
		fflush(stdout);
	}
	return 0 * count();
}
"""
TIMES = 9


@contextmanager
def _running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that is linked with libone.so, and has opened libtwo.so, of the same source."""
    if cannot():
        pytest.skip(cannot())
    (folder / "lib.c").write_text(LIBRARY)
    (folder / "main.c").write_text(PROGRAM)
    for name in ("libone.so", "libtwo.so"):
        words = ["gcc", "-O1", "-w", "-fPIC", "-shared", "lib.c", "-Wl,-Bsymbolic", "-o", name]
        subprocess.run(words, cwd=folder, check=True)
    words = ["gcc", "-O1", "main.c", "./libone.so", "-o", "main"]
    subprocess.run(words, cwd=folder, check=True)
    pipe = subprocess.PIPE
    words = ["./main", "./libtwo.so"]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=folder) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        yield program
        program.communicate()


def _bump(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write(f"{TIMES}\n")
    program.stdin.flush()
    assert program.stdout.readline() == f"{TIMES}\n"


def test_accesses_are_the_librarys(tmp_path: Path) -> None:
    with _running(tmp_path) as program:
        path = tmp_path / "libtwo.so"
        words = ("libtwo.so:counter:-w-", f"{path}:spare:-w-", "w@libtwo.so:hidden:8")
        with watching(program.pid, *words, "counter:-w-", "--json") as watcher:
            _bump(program)
            rows = accesses(watcher.end())
    assert Counter(row["symbol"] for row in rows) == {
        "libtwo.so:counter": TIMES,
        f"{path}:spare": TIMES,
        "libtwo.so:hidden": TIMES,
        "counter": 1,
    }
    values = {
        name: [int(row["new"], 16) for row in rows if row["symbol"].endswith(name)]
        for name in (":counter", ":spare", ":hidden")
    }
    assert values == {
        ":counter": [*range(8, 8 + TIMES)],
        ":spare": [*range(TIMES)],
        ":hidden": [*range(2, 2 * TIMES + 2, 2)],
    }


def test_another_library_of_the_same_name_is_not_meant(tmp_path: Path) -> None:
    words = ("libone.so:counter:rw-", "counter:-w-", "--json")
    with _running(tmp_path) as program, watching(program.pid, *words) as watcher:
        _bump(program)
        rows = accesses(watcher.end())
    assert [row["symbol"] for row in rows] == ["counter"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("libtow.so:counter:rw-", "no library 'libtow.so' is loaded; did you mean libtwo.so"),
        ("libtwo.so:countr:rw-", "libtwo.so: countr: no such symbol; did you mean counter?"),
        ("libtwo.so:bump:rw-", "libtwo.so: bump: a function, not a variable"),
        ("libtwo.so:table+32:rw-", "the offset is beyond the symbol"),
    ],
)
def test_what_cannot_be(text: str, reason: str, tmp_path: Path) -> None:
    with _running(tmp_path) as program:
        said = ftpatch("watch", "--pid", str(program.pid), text)
    assert said.code == 2 and said.err.count("\n") == 1 and reason in said.err


COPIED = """
#include <stdio.h>
extern volatile int copied;
void add(void);
__attribute__((noinline)) static void own(int n) { copied = n; }
int main(void)
{
	int n;

	puts("ready");
	fflush(stdout);
	while (scanf("%d", &n) == 1) {
		for (int i = 0; i < n; i++) {
			own(10 * i);
			add();
		}
		printf("%p\\n", (void *)&copied);
		fflush(stdout);
	}
	return 0;
}
"""


@pytest.mark.parametrize("link", ["-pie -fPIE", "-no-pie -fno-pie"])
@pytest.mark.parametrize("flags", ["", "-Wl,-Bsymbolic"])
def test_a_variable_that_the_program_has_a_copy_of(tmp_path: Path, link: str, flags: str) -> None:
    """Where the library uses the copy, that is what is watched, under the library's name; one that
    is bound to its own keeps that."""
    if cannot():
        pytest.skip(cannot())
    (tmp_path / "lib.c").write_text("volatile int copied = 1; void add(void) { copied++; }\n")
    (tmp_path / "main.c").write_text(COPIED)
    words = ["gcc", "-O1", "-w", "-fPIC", "-shared", "lib.c", *flags.split(), "-o", "libown.so"]
    subprocess.run(words, cwd=tmp_path, check=True)
    words = ["gcc", "-O1", *link.split(), "main.c", "./libown.so", "-o", "main"]
    subprocess.run(words, cwd=tmp_path, check=True)
    pipe = subprocess.PIPE
    with subprocess.Popen(["./main"], stdin=pipe, stdout=pipe, text=True, cwd=tmp_path) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        with watching(program.pid, "libown.so:copied:-w-", "--json") as watcher:
            program.stdin.write(f"{TIMES}\n")  # type: ignore[union-attr]
            program.stdin.flush()  # type: ignore[union-attr]
            program.stdout.readline()
            result = watcher.end()
        program.communicate()
    note = "libown.so:copied:-w-: the library uses the one of main, which is watched"
    assert (note in result.err) == (not flags)
    new = [int(row["new"], 16) for row in accesses(result)]
    both = [value for i in range(TIMES) for value in (10 * i, 10 * i + 1)]
    assert new == ([*range(2, 2 + TIMES)] if flags else both)


ENVIRON = """
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
	char *none[] = {0};
	int n;
#ifdef COPIED
	extern char **environ;
#endif
	puts("ready");
	fflush(stdout);
	while (scanf("%d", &n) == 1) {
		for (int i = 0; i < n; i++) {
#ifdef COPIED
			environ = none;
#endif
			clearenv();
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
"""


@pytest.mark.parametrize("copied", [True, False])
def test_a_variable_of_glibc(tmp_path: Path, copied: bool) -> None:
    """The program's copy has another of its names."""
    if cannot():
        pytest.skip(cannot())
    (tmp_path / "main.c").write_text(ENVIRON)
    words = [
        "gcc",
        "-O1",
        "-no-pie",
        "-fno-pie",
        *["-DCOPIED"][: int(copied)],
        "main.c",
        "-o",
        "main",
    ]
    subprocess.run(words, cwd=tmp_path, check=True)
    pipe = subprocess.PIPE
    with subprocess.Popen(["./main"], stdin=pipe, stdout=pipe, text=True, cwd=tmp_path) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        with watching(program.pid, "libc.so.6:environ:-w-", "--json") as watcher:
            program.stdin.write(f"{TIMES}\n")  # type: ignore[union-attr]
            program.stdin.flush()  # type: ignore[union-attr]
            program.stdout.readline()
            rows = accesses(watcher.end())
        program.communicate()
    assert [row["new"] for row in rows if row["function"].startswith("libc.so.6+")] == [
        "0x0"
    ] * TIMES
    assert len(rows) == TIMES * (1 + copied)
    said = ftpatch("watch", tmp_path / "main", "libc.so.6:environ:-w-", "--dry-run")
    assert said.code == 0 and said.out.startswith("libc.so.6:environ:-w-\n")


def test_not_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _running(tmp_path):
        pass
    monkeypatch.chdir(tmp_path)  # it needs ./libone.so
    said = ftpatch("watch", tmp_path / "main", "libtwo.so:counter:rw-", "--dry-run")
    assert said.code == 2
    assert "it loads no library 'libtwo.so' when it starts" in said.err


@pytest.mark.parametrize(
    ("text", "library", "symbol", "length"),
    [
        ("libm.so.6:signgam:rw-", "libm.so.6", "signgam", None),
        ("/lib/libstdc++.so.6:std::cout:-w-", "/lib/libstdc++.so.6", "std::cout", None),
        ("w@libm.so.6:signgam:4", "libm.so.6", "signgam", 4),
        ("rw@libm.so.6:signgam+2", "libm.so.6", "signgam", None),
        ("w@signgam:4", "", "signgam", 4),
        ("shop::Cart::total:rw-", "", "shop::Cart::total", None),
        ("libm.so.6:0x4030:rw-", "libm.so.6", "0x4030", None),
    ],
)
def test_how_it_is_written(text: str, library: str, symbol: str, length: int | None) -> None:
    found = parse_watch(text)
    assert (found.library, found.symbol, found.length) == (library, symbol, length)
    watch = Watch(
        symbol=symbol,
        offset=found.offset,
        address=0,
        length=length or 4,
        type=found.type,
        usual=length is None,
        library=library,
    )
    assert parse_watch(watch_line(watch)) == found


@pytest.mark.parametrize("text", ["a:b:rw-", "libm.so:a:b:rw-", "w@a:b:4", "libm.so::rw-"])
def test_what_is_no_library(text: str) -> None:
    with pytest.raises(UsageError):
        parse_watch(text)
