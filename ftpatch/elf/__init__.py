# SPDX-License-Identifier: MIT
"""ELF files: headers, tables and sections (System V ABI, chapters 4 and 5)."""
