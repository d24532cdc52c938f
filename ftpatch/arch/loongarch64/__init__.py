# SPDX-License-Identifier: MIT
"""loongarch64 (EM_LOONGARCH, 64 bits)."""
