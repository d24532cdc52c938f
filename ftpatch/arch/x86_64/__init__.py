# SPDX-License-Identifier: MIT
"""x86_64 (EM_X86_64)."""
