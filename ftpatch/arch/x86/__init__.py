# SPDX-License-Identifier: MIT
"""Common parts of x86_64 and i386; not an architecture itself."""
