# SPDX-License-Identifier: MIT
"""A program for probes that are laid in while it runs: it is told what to call, and answers with
what it counted itself."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.command import ftpatch

__all__ = ["Asked", "asked", "compiled", "hits", "library", "total"]

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define CALLED __attribute__((noinline, noipa))
struct pair { int first, second; };
#ifdef LIBRARY
long three(long n);
#else
CALLED long three(long n) { __asm__ volatile(""); return n * n - 3; }
#endif
CALLED long six(long a, long b, long c, long d, long e, long f) {
    return a + 2*b + 3*c + 4*d + 5*e + 6*f;
}
CALLED long named(const char *name, struct pair *pair) { return name[0] + pair->second; }
CALLED long deep(long n) {
    char line[64];
    if (n) return 1 + deep(n - 1);
    puts("waiting"); fflush(stdout);
    return fgets(line, sizeof(line), stdin) ? 0 : 100;
}
static long rounds;
static void *worker(void *at) {
    long own = (long)at;
    for (long i = 0; i < rounds; i++) {
        char *volatile block = malloc(1000003 + own), *volatile copy;
        volatile size_t size = strlen(memset(block, 'x', 16) ? (block[16] = 0, block) : 0);
        copy = strdup(block);  /* libc's own call of malloc, of 17 bytes */
        if (size != 16) abort();
        free(copy); free(block);
    }
    return 0;
}
static long threads(long number) {
    pthread_t all[16];
    rounds = 200;
    for (long i = 0; i < number; i++) pthread_create(&all[i], 0, worker, (void *)i);
    for (long i = 0; i < number; i++) pthread_join(all[i], 0);
    return number * rounds;
}
int main(void) {
    char line[64];
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        long n = atol(line + 1), sum = 0;
        struct pair pair = {1, 2};
        switch (*line) {
        case 'd': sum = deep(n); break;
        case 't': sum = threads(n); break;
        case 'c': for (long i = 0; i < n; i++) {
            pair.second = 7 * (int)i;
            sum += six(i, i + 1, i + 2, i + 3, i + 4, i + 5) + named("abc", &pair) + three(i);
        } }
        printf("%ld\n", sum); fflush(stdout);
    }
    return 7;
}
"""
LIBRARY = 'long three(long n) { __asm__ volatile(""); return n * n - 3; }\n'


class Asked:
    """The running program."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self.pid = ("--pid", str(program.pid))

    def ask(self, text: str) -> str:
        """Tell it, and return its answer."""
        assert self.program.stdin and self.program.stdout
        self.program.stdin.write(f"{text}\n")
        self.program.stdin.flush()
        return self.program.stdout.readline().strip()

    def maps(self) -> list[str]:
        """Its mappings but for the heap's size, and memory that malloc takes from the kernel."""
        held = Path(f"/proc/{self.program.pid}/maps").read_text().splitlines()
        return [re.sub(r"-\S+", "", line) if "[heap]" in line else line for line in held]

    def require_clean(self, before: list[str]) -> None:
        """Require the memory that was there before, with the code of its files."""
        assert self.maps() == before
        said = ftpatch("check", *self.pid)
        assert said.code == 0, said.out


def compiled(folder: Path, *flags: str, name: str = "prog") -> Path:
    """Compile the program to FOLDER/NAME."""
    path = folder / name
    path.with_suffix(".c").write_text(PROGRAM)
    words = ["gcc", "-O1", "-pthread", *flags, str(path.with_suffix(".c")), "-o", str(path)]
    subprocess.run(words, check=True)
    return path


def library(folder: Path) -> tuple[Path, Path]:
    """Compile the program and a library that has one of its functions."""
    path = folder / "libthree.so"
    source = path.with_suffix(".c")
    source.write_text(LIBRARY)
    words = ["gcc", "-O1", "-shared", "-fpic", str(source), "-o", str(path)]
    subprocess.run(words, check=True)
    return compiled(folder, "-DLIBRARY", "-Wl,--no-as-needed", str(path)), path


@contextmanager
def asked(path: Path) -> Iterator[Asked]:
    """Let it run. It must end well."""
    pipe = subprocess.PIPE
    with subprocess.Popen([path], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        one = Asked(program)
        one.ask("c1")  # what it allocates once
        yield one
        program.communicate()
    assert program.returncode == 7


def total(n: int) -> str:
    """What the program answers to ``c`` and this number."""
    six = sum(sum((k + 1) * (i + k) for k in range(6)) for i in range(n))
    return str(six + sum(ord("a") + 7 * i + i * i - 3 for i in range(n)))


def hits(trace: Path) -> tuple[Counter[str], dict[str, list[dict[str, Any]]]]:
    """How often each probe was hit, and what its hits recorded."""
    said = ftpatch("report", trace, "--format", "json")
    assert said.code == 0, said.err
    values: dict[str, list[dict[str, Any]]] = {}
    for row in said.json:
        if "values" in row:
            values.setdefault(row["probe"], []).append(row)
    return Counter({name: len(rows) for name, rows in values.items()}), values
