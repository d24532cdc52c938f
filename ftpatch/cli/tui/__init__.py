# SPDX-License-Identifier: MIT
"""``ftpatch report --tui``: a recording to walk through. Only imported where it is shown."""
