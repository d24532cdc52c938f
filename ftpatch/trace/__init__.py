# SPDX-License-Identifier: MIT
"""The files that traced programs write: reading, joining, and reporting them in several formats."""

from __future__ import annotations

from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource, Recording, SourceKind

__all__ = ["Data", "EventSource", "Recording", "Report", "SourceKind", "Style"]
