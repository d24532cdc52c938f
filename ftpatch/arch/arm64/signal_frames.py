# SPDX-License-Identifier: MIT
"""Signal frames of arm64, as in struct sigcontext (arch/arm64/include/uapi/asm/sigcontext.h).

| ... | regs[31] | sp | pc | pstate | - | fpsimd_context: magic, size | ...      a word each

The kernel saves the vectors first, and takes no frame without them (setup_sigframe_layout(),
parse_user_sigframe() in arch/arm64/kernel/signal.c).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["SAVED_AT"]

FPSIMD: Final = 528 << 32 | 0x4650_8001
"""struct _aarch64_ctx of an fpsimd_context: FPSIMD_MAGIC, its size."""
BEFORE: Final = 3
"""Words between the place of pc and that of this."""


def _saved_at(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    saved: NDArray[np.uint64] = words[:-BEFORE][words[BEFORE:] == FPSIMD]
    return saved


SAVED_AT: Final = _saved_at
