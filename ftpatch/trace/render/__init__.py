# SPDX-License-Identifier: MIT
"""Parts that report formats share: style, cells of lines, values of hits, Perfetto's packets."""

from __future__ import annotations

from ftpatch.trace.render.style import Style

__all__ = ["Style"]
