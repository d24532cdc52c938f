# SPDX-License-Identifier: MIT
"""Limits of what a runtime may be asked to keep: entries of a ret_stack, bytes of a trace file."""

from __future__ import annotations

from ftpatch.errors import UsageError

__all__ = ["DEPTH", "MIN_TRACE_SIZE", "TRACE_SIZE", "require_limits"]

DEPTH = 1024
"""Default entries of a ret_stack."""
MIN_DEPTH, MAX_DEPTH = 8, 65536
TRACE_SIZE = 64 << 20
"""Default size of a trace file in bytes."""
MIN_TRACE_SIZE = 64 << 10
"""Smallest trace file in bytes, as in stubs/runtime/file.h."""


def require_limits(*, depth: int = DEPTH, size: int = TRACE_SIZE) -> None:
    """Raise UsageError for what is out of range."""
    if not MIN_DEPTH <= depth <= MAX_DEPTH:
        raise UsageError(None, f"--depth {depth} is out of range ({MIN_DEPTH} to {MAX_DEPTH})")
    if size < MIN_TRACE_SIZE:
        reason = f"trace file size {size} is too small"
        raise UsageError(None, reason, f"the minimum is {MIN_TRACE_SIZE} bytes")
