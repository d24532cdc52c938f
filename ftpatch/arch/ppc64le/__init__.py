# SPDX-License-Identifier: MIT
"""ppc64le (EM_PPC64, 64 bits, little-endian, ELFv2)."""
