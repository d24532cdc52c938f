# SPDX-License-Identifier: MIT
"""Outcomes of updates: as JSON, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftpatch.cli.console import count, error_line, lines
from ftpatch.names.demangle import demangled, demangled_place

if TYPE_CHECKING:
    from ftpatch.errors import Refused, UsageError
    from ftpatch.ftrace.ftrace_bug import FtraceBug
    from ftpatch.update.update import Outcome

__all__ = [
    "all_told",
    "cleared_line",
    "dropped_line",
    "outcome_row",
    "refused_lines",
    "skipped_lines",
    "undefined_line",
]


def outcome_row(outcome: Outcome, seconds: float | None = None) -> dict[str, Any]:
    """An outcome as JSON."""
    row: dict[str, Any] = {
        "output": None if outcome.written is None else str(outcome.written),
        "changed": outcome.changed,
        "unchanged": outcome.unchanged,
        "dropped": outcome.dropped,
        "restored": outcome.restored,
    }
    if seconds is not None:
        row["seconds"] = round(seconds, 3)
    if outcome.calls:
        row["library_calls"] = outcome.calls
    if outcome.undefined:
        row["undefined"] = outcome.undefined
    if outcome.cleared:
        row["cleared"] = outcome.cleared
    return row | {"failed": [_failed(bug, reason) for bug, reason in outcome.refused]}


def _failed(bug: FtraceBug, reason: str) -> dict[str, str]:
    return {
        "ip": hex(bug.ip),
        "symbol": bug.place if bug.symbol else "",
        "reason": reason,
        "actual": bug.actual.hex(":"),
        "expected": bug.expected.hex(":"),
    }


def refused_lines(image: Path, outcome: Outcome, shown: int = 10) -> None:
    """The refused sites, as ftrace_bug prints them."""
    from ftpatch.ftrace.ftrace_bug import bug_text

    for bug, reason in outcome.refused[:shown]:
        error_line(f"{image}: {demangled_place(bug.place)}: {reason}")
        named = replace(bug, symbol=demangled(bug.symbol))
        lines(bug_text(named).splitlines(), error=True)
    if len(outcome.refused) > shown:
        error_line(f"... and {len(outcome.refused) - shown} more; use --json for all")


def dropped_line(number: int, meaning: str) -> str:
    """Summarize dropped records, and what that means for their functions."""
    return f"{count(number, 'record')} dropped: {meaning}"


def cleared_line(name: str) -> str:
    """Explain a property that the output no longer has."""
    return f"{name} cleared: replaced return addresses would fault under a shadow stack"


def skipped_lines(skipped: Sequence[UsageError], *, verbose: bool) -> list[str]:
    """Count the functions of wildcards that cannot be probed, or name each if ``verbose``."""
    if verbose or not skipped:
        return [str(one) for one in skipped]
    number = len(skipped)
    are = "is" if number == 1 else "are"
    return [f"{count(number, 'function')} matched, but {are} not probed; -v says why"]


def undefined_line(name: str, versioned: bool) -> str:
    """Explain a callee that a module does not define; ``versioned``: with CRCs of the others."""
    from ftpatch.ftrace.callees import CALLERS

    if name in CALLERS:
        return f"{name}: not exported to modules, so insmod will fail (Unknown symbol)"
    line = f"{name} is undefined: the kernel or another module must export it"
    if versioned:
        line += "; the module has no CRC for it, as CONFIG_MODVERSIONS requires"
    return line


@contextmanager
def all_told(refused: Refused) -> Iterator[None]:
    """Tell all that was refused, but for the error that ends the command: that comes last."""
    try:
        yield
    finally:
        for error in refused.errors:
            error_line(str(error))
