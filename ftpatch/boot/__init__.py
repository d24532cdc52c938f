# SPDX-License-Identifier: MIT
"""Boot traces: from a stream of events to rows that every report can use."""

from ftpatch.boot.calls import Calls
from ftpatch.boot.events import BootTrace, is_stream
from ftpatch.boot.hook_events import open_stream
from ftpatch.boot.stream import Source, find_source, read_stream

__all__ = ["BootTrace", "Calls", "Source", "find_source", "is_stream", "open_stream", "read_stream"]
