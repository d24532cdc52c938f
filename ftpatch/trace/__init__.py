"""The files that traced programs write: read, put together, and told in several formats."""

from __future__ import annotations

from ftpatch.trace.formats import FORMATS, Format, format_for, require_known
from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace

__all__ = ["FORMATS", "Format", "Look", "Trace", "format_for", "require_known"]
