"""Names of C++ and Rust, as sources have them."""

from __future__ import annotations

__all__ = ["demangled"]

MANGLED = ("_Z", "_R")
"""How names of C++ and of both of Rust's schemes begin."""


def demangled(name: str) -> str:
    """A C++ or Rust name as its source has it, any other as it is; what stands behind an ``@``, as
    a version, stays."""
    if not name.startswith(MANGLED):
        return name
    from demangle import demangle

    bare, at, behind = name.partition("@")
    # It says what c++filt says, and gives up in time.
    return f"{demangle(bare, style='gnu')}{at}{behind}"
