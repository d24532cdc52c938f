"""Names of C++, Rust and D, as their sources have them."""

from __future__ import annotations

__all__ = ["MANGLED", "demangled"]

MANGLED = ("_Z", "_R", "_D")
"""Prefixes of names of C++, of both of Rust's schemes and of D; C has some of these as well."""
MAX_NAME = 1 << 16
"""Characters that a demangled name may have."""
EXPANSION = 40
"""Characters that it may have for each of the mangled name, besides BASE_NAME: substitutions double
a name with each step, and a file can have many such. Of 140,000 names of real libraries none goes
beyond 29."""
BASE_NAME = 1 << 10
SCHEMES = ("itanium", "rust", "d")


def demangled(name: str) -> str:
    """A mangled name as its source has it, any other as it is; what stands behind an ``@``, as
    a version, stays."""
    if not name.startswith(MANGLED):
        return name
    from demangle import Limits, demangle

    bare, at, behind = name.partition("@")
    limits = Limits(max_output=min(MAX_NAME, BASE_NAME + EXPANSION * len(bare)))
    # It says what c++filt says, and gives up in time.
    source = demangle(bare, language=SCHEMES, style="gnu", limits=limits)
    return f"{source}{at}{behind}"
