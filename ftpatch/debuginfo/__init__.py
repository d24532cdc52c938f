# SPDX-License-Identifier: MIT
"""Names, types and lines of the source, and the places of its values, from DWARF."""
