# SPDX-License-Identifier: MIT
"""Limits of what a runtime may be asked to keep: entries of a ret_stack, bytes of a trace file,
probes."""

from __future__ import annotations

from ftpatch.api.given import whole_number
from ftpatch.errors import UsageError

__all__ = ["MAX_STACK", "MIN_TRACE_SIZE", "TRACE_SIZE", "WILDCARD_LIMIT", "require_limits"]

MAX_STACK = 1024
"""Default entries of a ret_stack."""
MIN_STACK, LIMIT = 8, 65536
"""Entries of a ret_stack that can be asked for."""
TRACE_SIZE = 64 << 20
"""Default size of a trace file in bytes."""
MIN_TRACE_SIZE = 64 << 10
"""Smallest trace file in bytes, as in stubs/runtime/file.h."""
WILDCARD_LIMIT = 1000
"""Default number of functions that a probe's wildcard may match."""


def require_limits(*, max_stack: int = MAX_STACK, size: int = TRACE_SIZE, limit: int = 0) -> None:
    """Raise UsageError for what is out of range."""
    whole_number("limit", limit)
    if limit < 0:
        raise UsageError(None, f"--limit {limit} is negative", "use 0 for any number")
    whole_number("max_stack", max_stack)
    whole_number("size", size)
    if not MIN_STACK <= max_stack <= LIMIT:
        raise UsageError(None, f"--max-stack {max_stack} is out of range ({MIN_STACK} to {LIMIT})")
    if size < MIN_TRACE_SIZE:
        reason = f"trace file size {size} is too small"
        raise UsageError(None, reason, f"the minimum is {MIN_TRACE_SIZE} bytes")
