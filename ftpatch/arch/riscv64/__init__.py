# SPDX-License-Identifier: MIT
"""riscv64 (EM_RISCV, 64 bits)."""
