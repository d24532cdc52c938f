# SPDX-License-Identifier: MIT
"""armhf and armel: 32-bit ARM, of which most programs are in Thumb."""
