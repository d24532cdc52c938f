# SPDX-License-Identifier: MIT
"""A program whose functions are called in many ways, and the calls of a report by link address, to
be compared with those of gdb."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

__all__ = ["SOURCE", "Calls", "Oracle", "gdb_calls"]

SOURCE = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

static volatile int held;

APART int leaf(int n)
{
        held += n;
        return n * 3;
}

APART int deep(int n)
{
        int below = n > 0 ? deep(n - 1) : leaf(n);

        return below + held;
}

APART int compared(const void *left, const void *right)
{
        int a = *(const int *)left, b = *(const int *)right;

        return leaf(a - b) > 0 ? a - b + held - held : a - b;
}

APART void handled(int number)
{
        held -= leaf(number);
}

APART int sized(int n)
{
        char *room = __builtin_alloca(n * 16 + 16);

        memset(room, n, n * 16 + 16);
        return leaf(room[n]) + room[0];
}

/* Its frame is aligned further than the ABI asks for: its CFA is what an expression says. */
APART int aligned(int n)
{
        _Alignas(64) volatile char room[64] = {(char)n};
        volatile char *more = __builtin_alloca(n + 1);

        more[n] = 1;
        return leaf(room[0]) + (int)((unsigned long)room & 63) + more[n];
}

/* Where vectors are kept, they are saved beside general registers. */
APART double weighed(double n)
{
        return leaf((int)n) * n + n;
}

APART void *threaded(void *given)
{
        return (void *)(long)deep(*(int *)given);
}

int main(int count, char **words)
{
        int numbers[] = {5, 3, 9, 1}, depth = count > 1 ? atoi(words[1]) : 3;
        struct sigaction action = {.sa_handler = handled};
        pthread_t thread;

        printf("%d\n", deep(depth));
        qsort(numbers, 4, sizeof(*numbers), compared);
        sigaction(SIGUSR1, &action, 0);
        raise(SIGUSR1);
        printf("%d %d\n", sized(3), aligned(depth));
        printf("%d\n", (int)weighed(depth));
        pthread_create(&thread, 0, threaded, &depth);
        pthread_join(thread, 0);
        printf("%d\n", numbers[0]);
        return 0;
}
"""
GDB = Path(__file__).with_name("stack_gdb.py")
Calls = list[tuple[str, int]]
"""The file of each, empty for the program, and the link address."""


def _symbols(path: Path, *options: str) -> dict[str, set[int]]:
    done = subprocess.run(["nm", *options, str(path)], capture_output=True, text=True, check=False)
    found: dict[str, set[int]] = {}
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 3:
            found.setdefault(words[2].partition("@")[0], set()).add(int(words[0], 16))
    return found


class Oracle:
    """Turns the names of a report back into addresses, by nm. ``libraries``: the folder of those
    that a program of another architecture has."""

    def __init__(self, program: Path, libraries: Path | None = None) -> None:
        self.program, self._folder = program, libraries
        self.own = _symbols(program)
        self.libraries: dict[str, dict[str, set[int]]] = {}

    def is_same(self, text: str, call: tuple[str, int]) -> bool:
        """Test whether a name of a report is that of a call in gdb."""
        found = re.fullmatch(r"(.+)\+(0x[0-9a-f]+)(?:/0x[0-9a-f]+)?(?: \[(.*)\])?", text)
        if found is None:
            return False
        name, offset, library = found[1], int(found[2], 16), found[3] or ""
        file, link = call
        if not library and name == (file or "program"):
            return offset == link
        if library != file:
            return False
        if file and file not in self.libraries:
            self.libraries[file] = _symbols(self._library(file), "-D")
        symbols = self.libraries[file] if file else self.own
        return any(start + offset == link for start in symbols.get(name, ()))

    def require_same(self, texts: list[str], calls: Calls) -> None:
        """Fail unless all of the calls are the same."""
        same = [self.is_same(*pair) for pair in zip(texts, calls, strict=False)]
        assert len(texts) == len(calls), (texts, calls)
        assert all(same), list(zip(texts, calls, same, strict=True))

    def _library(self, name: str) -> Path:
        if self._folder is not None:
            return self._folder / name
        done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True)
        return next(Path(line.split()[-1]) for line in done.stdout.splitlines() if name in line)


def gdb_calls(
    program: Path, places: list[int], base: int, words: str = ""
) -> dict[int, list[Calls]]:
    """The backtraces at each place, innermost first, hit by hit."""
    folder = program.parent
    plan = {"at": places, "words": words, "out": str(folder / "backtraces"), "base": base}
    (folder / "plan").write_text(json.dumps(plan | {"program": str(program)}))
    subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(GDB), str(program)],
        cwd=folder,
        env={**os.environ, "PLAN": str(folder / "plan"), "DEBUGINFOD_URLS": ""},
        capture_output=True,
        check=True,
    )
    found: dict[int, list[Calls]] = {}
    for at, calls in json.loads((folder / "backtraces").read_text()):
        named = [("" if Path(path) == program else Path(path).name, link) for path, link in calls]
        found.setdefault(at, []).append(named)
    return found
