# SPDX-License-Identifier: MIT
"""Kernels in a crash dump or in /proc/kcore, read and never changed."""
