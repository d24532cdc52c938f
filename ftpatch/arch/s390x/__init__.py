# SPDX-License-Identifier: MIT
"""s390x (EM_S390, 64 bits)."""
