# SPDX-License-Identifier: MIT
"""The kinds of sources that the packages of ftpatch register: SOURCES in the events.py of each."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

import ftpatch
from ftpatch.trace import choose
from ftpatch.trace.header import Tracer
from ftpatch.trace.report import Report
from ftpatch.trace.source import SourceKind

__all__ = ["default_report", "kind_of", "report_named", "reports_ending", "source_kinds"]


@cache
def source_kinds() -> tuple[SourceKind, ...]:
    """All of them."""
    (root,) = ftpatch.__path__
    packages = (one.name for one in pkgutil.iter_modules([root]) if one.ispkg)
    having = (name for name in packages if (Path(root) / name / "events.py").is_file())
    modules = (import_module(f"{ftpatch.__name__}.{name}.events") for name in having)
    return tuple(kind for module in modules for kind in module.SOURCES)


def kind_of(tracer: Tracer) -> SourceKind:
    """The kind that a tracer records."""
    return next(kind for kind in source_kinds() if tracer in kind.tracers)


def default_report(tracer: Tracer) -> str:
    """The name of a tracer's own report."""
    return kind_of(tracer).default


def report_named(tracer: Tracer, name: str) -> Report:
    """The format of that name, for what a tracer records. Raises UsageError."""
    return choose.report_named(kind_of(tracer), name)


def reports_ending(tracer: Tracer, ending: str) -> list[str]:
    """The formats of a tracer whose files have names that end in ``ending``, its own first."""
    return choose.reports_ending(kind_of(tracer), ending)
