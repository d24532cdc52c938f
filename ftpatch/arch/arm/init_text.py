# SPDX-License-Identifier: MIT
"""A kernel's .init.text, which may call __gnu_mcount_nc by way of a linker's veneer: Linux kernel
commit dc438db5828f ("ARM: ftrace: use trampolines to keep .init.text in branching range") (in
v5.18)."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.init_text import InitText

__all__ = ["INIT_TEXT"]

INIT_TEXT: Final = InitText("_sinittext", "_einittext", "ftrace_caller_from_init")
