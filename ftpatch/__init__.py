# SPDX-License-Identifier: MIT
"""ftrace for ELF files on disk."""

__version__ = "0.1.0"
__all__ = ["__version__"]
