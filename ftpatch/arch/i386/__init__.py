# SPDX-License-Identifier: MIT
"""i386 (EM_386)."""
