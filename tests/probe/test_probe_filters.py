# SPDX-License-Identifier: MIT
"""Filters of probes: the compiler's idea of the same condition counts the hits."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.support.compiled_filters import assert_as_compiled
from tests.support.sampling import FUZZ, scaled

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
FIELDS = (
    "n=$arg2:s32 u=$arg3:u32 name=+0($arg4):string s=$arg5:s64 v=+4($arg1):s32 w=+0($arg1):u16 "
    "deep=+4(+8($arg1)):s32"
)
SOURCE = r"""
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
struct box { unsigned short w; int v; struct box *next; };
static unsigned wanted[%(many)d], every[%(many)d], first[%(many)d];
__attribute__((noinline)) void check(struct box *box, int n, unsigned u, const char *name, long s)
{
	__asm__ volatile("" : : "r"(box), "r"(n), "r"(u), "r"(name), "r"(s) : "memory");
}
static void ask(struct box *box, int n, unsigned u, const char *name, long s, int tid)
{
	%(tests)s
	check(box, n, u, name, s);
}
int main(void)
{
	struct box boxes[3] = {{7, -1, boxes + 1}, {65535, 3, 0}, {0, 1 << 30, (struct box *)8}};
	char name[64];

	srand(1);
	for (int i = 0; i < 400; i++) {
		int size = rand() %% 8 ? rand() %% 6 : rand() %% 63;

		for (int k = 0; k < size; k++)
			name[k] = "abc"[rand() %% 3];
		name[size] = 0;
		struct box *box = rand() %% 5 ? boxes + rand() %% 3 : (struct box *)(rand() %% 2 * 4096L);
		int n = rand() %% 9 - 4;
		unsigned u = rand() %% 3 ? rand() %% 9 : -(rand() %% 9);
		long s = (rand() %% 9 - 4L) << rand() %% 60;

		ask(box, n, u, rand() %% 6 ? name : (char *)8, s, gettid());
	}
	for (int i = 0; i < %(many)d; i++)
		printf("%%u\n", wanted[i]);
	return 0;
}
"""
SIGNS = ("==", "!=", "<", "<=", ">", ">=", "&")
# How to read them, and what makes them readable.
SIGNED = {"n": "1", "s": "1", "v": "has(box)", "deep": "has(box) && has(box->next)"}
UNSIGNED = {"u": "1", "w": "has(box)"}
C_NAMES = {"v": "box->v", "w": "box->w", "deep": "box->next->v"}
READABLE = "#define has(place) ((unsigned long)(place) > 4096)\n"


def _number(rng: random.Random) -> tuple[str, str]:
    """A comparison as a filter has it, and as C does."""
    fields = SIGNED if rng.random() < 0.7 else UNSIGNED
    left, sign = rng.choice(list(fields)), rng.choice(SIGNS)
    readable, right, c_right = fields[left], "", ""
    cast = "(long)" if fields is SIGNED else "(unsigned long)"
    if rng.random() < 0.3:
        right = rng.choice(list(fields))
        readable += f" && {fields[right]}"
        c_right = C_NAMES.get(right, right)
    elif fields is SIGNED:
        number = rng.choice([0, 1, -1, 3, -4, 2])
        right, c_right = str(number), f"{number}L"
    else:
        right = c_right = str(rng.choice([0, 1, 7, 65535]))
    blank = rng.choice([" ", ""]) if sign != "&" else " "
    test = f"{cast}{C_NAMES.get(left, left)} {sign} {cast}{c_right}"
    return f"{left}{blank}{sign}{blank}{right}", f"({readable} && (({test}) != 0))"


def _string(rng: random.Random) -> tuple[str, str]:
    sign = rng.choice(["==", "!=", "~", "~"])
    letters = "abc*?" if sign == "~" else "abc"
    text = "".join(rng.choice(letters) for _ in range(rng.randrange(5)))
    if rng.random() < 0.1:
        text = text.replace("*", "") + ("*" if sign == "~" else "") + "a" * rng.randrange(30)
    same = f'!fnmatch("{text}", name, 0)' if sign == "~" else f'!strcmp("{text}", name)'
    return f'name {sign} "{text}"', f"(has(name) && {'!' * (sign == '!=')}{same})"


def _filter(rng: random.Random, row: int, depth: int, counts: list[str]) -> tuple[str, str]:
    kind = rng.random()
    if depth and kind < 0.6:
        sign = rng.choice(["&&", "||"])
        parts = [_filter(rng, row, depth - 1, counts) for _ in range(rng.randrange(2, 4))]
        ours, theirs = (f" {sign} ".join(side) for side in zip(*parts, strict=True))
        return f"({ours})", f"({theirs})"
    if depth and kind < 0.7:
        ours, theirs = _filter(rng, row, depth - 1, counts)
        return f"!{ours}" if ours[0] == "(" else f"!({ours})", f"!{theirs}"
    if counts and kind < 0.78:
        count, number = counts.pop(), rng.randrange(1, 20)
        if count == "every":
            return f"every({number})", f"(++every[{row}] % {number} == 0)"
        return f"first({number})", f"(first[{row}] < {number} && ++first[{row}])"
    return _string(rng) if kind < 0.9 else _number(rng)


@pytest.mark.parametrize("arch", ["x86_64", "arm64"])
def test_as_the_compiler_sees_it(arch: str, tmp_path: Path) -> None:
    rng = random.Random(FUZZ)
    many = scaled(120, 40)
    pairs = [_filter(rng, row, rng.randrange(4), ["every", "first"]) for row in range(many)]
    source = "#define _GNU_SOURCE\n" + READABLE + SOURCE
    assert_as_compiled(arch, tmp_path, source, FIELDS, pairs)
