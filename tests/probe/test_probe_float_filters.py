# SPDX-License-Identifier: MIT
"""Filters on floats: the compiler's idea of the same comparison counts the hits, and the C library
says what a number is."""

from __future__ import annotations

import ctypes
import random
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.core.float_numbers import DECIMAL, ordered, rounded
from ftpatch.core.token import Token
from ftpatch.errors import UsageError
from ftpatch.probe import definition_text, parse_probe
from tests.support.compiled_filters import assert_as_compiled
from tests.support.sampling import FUZZ, scaled

SOURCE = r"""
#include <math.h>
#include <stdio.h>
#include <string.h>
static unsigned wanted[%(many)d];
__attribute__((noinline, noipa)) void check(double d, float f, const double *pd, const float *pf)
{
	__asm__ volatile("" : : : "memory");
}
int main(void)
{
	static const double all[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, 0x1p-1074, -0x1p-1074,
		0x1p-1022, -0x1p-1022, 0x1.fffffffffffffp1023, 1, -1, 1.5, -1.5, 0.1, -0.1, 2.5, 1e22};
	static const float small[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 0x1p-149f,
		-0x1p-149f, 0x1p-126f, -0x1p-126f, 0x1.fffffep127f, 1, -1, 1.5f, -1.5f, 0.1f, -0.1f,
		2.5f, 1e22f};
	const int n = sizeof(all) / sizeof(*all);

	for (int i = 0; i < n * n; i++) {
		double d = all[i %% n], od = all[i / n];
		float f = small[i %% n], of = small[i / n];

		%(tests)s
		check(d, f, &od, &of);
	}
	for (int i = 0; i < %(many)d; i++)
		printf("%%u ", wanted[i]);
	return 0;
}
"""
SIGNS = ("==", "!=", "<", "<=", ">", ">=")
NUMBERS = ("0", "-0.0", "1", "-1", "1.5", "-1.5", "0.1", "-.1", "1e22", "5e-324", "1e-45", "2.5E0",
           "1.17549435e-38", "3.4028234e38", "100", "0.1000000014")  # fmt: skip
FIELDS = {
    "x86_64": "d=%xmm0:f64 f=%xmm1:f32 od=+0($arg1):f64 of=+0($arg2):f32",
    "arm64": "d=%v0:f64 f=%v1:f32 od=+0($arg1):f64 of=+0($arg2):f32",
}


def _test(rng: random.Random) -> tuple[str, str]:
    """A comparison of ours, and the compiler's."""
    suffix = rng.choice(["", "f"])
    left = rng.choice(["d", "od"] if not suffix else ["f", "of"])
    if rng.random() < 0.1:
        return left, f"({left} != 0)"
    sign = rng.choice(SIGNS)
    if rng.random() < 0.4:
        right = rng.choice(["d", "od"] if not suffix else ["f", "of"])
        return f"{left} {sign} {right}", f"({left} {sign} {right})"
    number = rng.choice(NUMBERS)
    dotted = number if any(one in number for one in ".eE") else number + ".0"
    return f"{left} {sign} {number}", f"({left} {sign} {dotted}{suffix})"


def _filter(rng: random.Random) -> tuple[str, str]:
    ours, theirs = _test(rng)
    if rng.random() < 0.3:
        ours, theirs = f"!({ours})", f"!{theirs}"
    if rng.random() < 0.5:
        sign, (other, their_other) = rng.choice(["&&", "||"]), _test(rng)
        return f"({ours} {sign} {other})", f"({theirs} {sign} {their_other})"
    return ours, theirs


@pytest.mark.parametrize("arch", ["x86_64", "arm64"])
def test_as_the_compiler_compares(arch: str, tmp_path: Path) -> None:
    rng, many = random.Random(FUZZ), scaled(120, 40)
    pairs = [_filter(rng) for _ in range(many)]
    assert_as_compiled(arch, tmp_path, SOURCE, FIELDS[arch], pairs)


def _theirs(text: str, type: str) -> float:
    library = ctypes.CDLL(None)
    function = library.strtof if type == "f32" else library.strtod
    function.restype = ctypes.c_float if type == "f32" else ctypes.c_double
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    return float(function(text.encode(), None))


def _middles() -> st.SearchStrategy[str]:
    """Numbers in the middle of two floats, and very near to it: rounding twice is wrong there."""

    def middle(bits: int, beside: int) -> str:
        low, high = np.array([bits, bits + 1], np.uint32).view(np.float32).astype(np.float64)
        with localcontext(prec=400):
            between = Decimal((low + high) / 2)
            return f"{between + beside * between / 10**40:f}"

    return st.builds(middle, st.integers(0, 0x7F7FFFFE), st.integers(-1, 1))


@given(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        st.from_regex(r"-?[0-9]{1,12}\.[0-9]{1,30}([eE][-+]?[0-9]{1,2})?", fullmatch=True),
        _middles(),
    ),
    st.sampled_from(["f32", "f64"]),
)
def test_numbers_are_rounded_as_by_the_library(text: str, type: str) -> None:
    assert DECIMAL.fullmatch(text) or text.isdigit()
    theirs = _theirs(text, type)
    try:
        assert np.array(rounded(Token(text, 0, len(text)), type)).tobytes() == (
            np.array(theirs).tobytes()
        )
    except UsageError:
        assert np.isinf(theirs)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_the_order_is_that_of_the_numbers(one: float, other: float) -> None:
    assert (ordered(one, "f64") < ordered(other, "f64")) == (one < other)
    assert (ordered(one, "f64") == ordered(other, "f64")) == (one == other)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["f32", "f64"]))
def test_a_filter_is_told_so_that_it_means_the_same(value: float, type: str) -> None:
    text = f"p f x=%v0:{type} if x > {value!r} || !(%v1:{type} != x)"
    try:
        found = parse_probe(text, (), arguments=6, vectors=("v0", "v1"))
    except UsageError:
        assert type == "f32" and abs(value) > float(np.finfo(np.float32).max)
        return
    again = parse_probe(definition_text(found), (), arguments=6, vectors=("v0", "v1"))
    assert again == found
