# SPDX-License-Identifier: MIT
"""The instruction sets of 32-bit ARM, one file each; not an architecture itself."""
