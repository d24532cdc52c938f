# SPDX-License-Identifier: MIT
"""Records that the table of a module must have, null ones included.

The loader asks for memory for a trampoline each, and of none it is refused: execmem_alloc(0) warns,
and the module fails with ENOMEM (module_alloc_ftrace_hotpatch_trampolines() in
arch/s390/kernel/module.c). Null is skipped by every version of ftrace_process_locs().
"""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST_RECORDS"]

LEAST_RECORDS: Final = 1
