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
from tests.support.stopping import until
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


def test_a_variable_that_the_program_has_a_copy_of(tmp_path: Path) -> None:
    """The library's own is not used then, and that is said."""
    if cannot():
        pytest.skip(cannot())
    (tmp_path / "lib.c").write_text("int copied = 1; int get(void) { return copied; }\n")
    (tmp_path / "main.c").write_text(
        "#include <unistd.h>\nextern int copied; int get(void);\n"
        "int main(void) { copied = 2; pause(); return get(); }\n"
    )
    words = ["gcc", "-O1", "-w", "-fPIC", "-shared", "lib.c", "-o", "libown.so"]
    subprocess.run(words, cwd=tmp_path, check=True)
    subprocess.run(["gcc", "-O1", "main.c", "./libown.so", "-o", "main"], cwd=tmp_path, check=True)
    with subprocess.Popen(["./main"], cwd=tmp_path) as program:
        until(lambda: "libown" in Path(f"/proc/{program.pid}/maps").read_text())
        words = ["libown.so:copied:rw-", "--seconds", "0.1"]
        said = ftpatch("watch", "--pid", str(program.pid), *words)
        program.kill()
    assert "libown.so:copied:rw-: the program has a variable of that name" in said.err


def test_not_in_files(tmp_path: Path) -> None:
    with _running(tmp_path):
        pass
    said = ftpatch("watch", tmp_path / "main", "libtwo.so:counter:rw-", "--dry-run")
    assert said.code == 2
    assert "libtwo.so:counter: libraries are watched in running processes only" in said.err


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
