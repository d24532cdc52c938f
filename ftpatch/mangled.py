"""Names of C++ and Rust, as sources have them."""

from __future__ import annotations

__all__ = ["MANGLED", "demangled"]

MANGLED = ("_Z", "_R")
"""How names of C++ and of both of Rust's schemes begin."""


def demangled(name: str) -> str:
    """A C++ or Rust name as its source has it, any other as it is."""
    if not name.startswith(MANGLED):
        return name
    from demangle import demangle

    return str(demangle(name, style="gnu"))  # it says what c++filt says, and gives up in time
