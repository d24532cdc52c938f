# SPDX-License-Identifier: MIT
"""Watched variables, requested as in the ksym tracer's filter (kernel/trace/trace_ksym.c, 2009 to
2010).

Text and numbers in, the same out: nothing here opens an image or sets a breakpoint.
"""

from __future__ import annotations

from ftpatch.watch.grammar import Request, parse_watch
from ftpatch.watch.watches import Watch, apply_requests, readable, watch_line

__all__ = ["Request", "Watch", "apply_requests", "parse_watch", "readable", "watch_line"]
