# SPDX-License-Identifier: MIT
"""32-bit ARM (EM_ARM), of which most programs are in Thumb."""
