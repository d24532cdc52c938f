# SPDX-License-Identifier: MIT
"""Tests against real kernels: Debian's own vmlinux files, and what they say under QEMU."""
