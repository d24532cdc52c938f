# SPDX-License-Identifier: MIT
"""The interface for Python, on which the command line stands as well. Nothing here prints."""
