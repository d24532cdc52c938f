# SPDX-License-Identifier: MIT
"""Numbers that filters compare floats with, as IEEE 754 rounds and orders them."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np

from ftpatch.core.number_types import TYPES
from ftpatch.core.token import Token, read_number

__all__ = ["DECIMAL", "ordered", "rounded"]

DECIMAL = re.compile(r"-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?(?![\w.])")
"""A number with a point or an exponent."""
MAX_DIGITS = 1024
"""Characters of a number: no double has more digits that matter."""
_FLOATS: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f64": np.float64}


def rounded(token: Token, type: str) -> float:
    """The number of a token, rounded to the nearest float of a type, to even in the middle, as
    compilers do with one. Raises UsageError for one that is too large."""
    whole = read_number(token.text.removeprefix("-"))
    if len(token.text) > MAX_DIGITS:
        raise token.refuse("the number is too long", f"at most {MAX_DIGITS} characters")
    text = token.text if whole is None else f"{'-' * (token.text[0] == '-')}{whole}"
    value = float(text)
    if type == "f32" and value and math.isfinite(value):
        value = _odd(value, Fraction(text))
    with np.errstate(over="ignore"):
        out = float(_FLOATS[type](value))
    if math.isinf(out):
        most = float(np.finfo(_FLOATS[type]).max)
        raise token.refuse("it can never be that", f"{type} holds up to {most:.9g}")
    return out


def ordered(value: float, type: str) -> int:
    """The number that the runtime makes of a float: of its sign and magnitude, so that the order is
    the same, and -0 is 0."""
    width = TYPES[type]
    bits = int(np.array(value, f"<f{width}").view(f"<u{width}"))
    sign = 1 << (8 * width - 1)
    return sign - bits if bits & sign else bits


def _odd(value: float, exact: Fraction) -> float:
    """A double that was rounded to even, rounded to odd instead: rounding it again, to a float,
    makes no other number of it than rounding once would."""
    if Fraction(value) == exact or ordered(abs(value), "f64") % 2:
        return value
    return math.nextafter(value, math.inf if exact > value else -math.inf)
