# SPDX-License-Identifier: MIT
"""The kinds of sources that the packages of ftpatch register: SOURCES in the events.py of each."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.api.call_filters import require_calls, require_known_early
from ftpatch.trace import choose
from ftpatch.trace.header import Tracer
from ftpatch.trace.report import Report
from ftpatch.trace.source import EventSource, SourceKind
from ftpatch.trace.window import Window

if TYPE_CHECKING:
    from ftpatch.trace.followed import Pace
    from ftpatch.trace.reader import OpenFile

__all__ = [
    "default_report",
    "follow_events",
    "kind_of",
    "open_events",
    "report_named",
    "reports_ending",
    "source_kinds",
]


@cache
def source_kinds() -> tuple[SourceKind, ...]:
    """All of them."""
    root = Path(__file__).parent.parent
    packages = (one.name for one in pkgutil.iter_modules([str(root)]) if one.ispkg)
    having = (name for name in packages if (root / name / "events.py").is_file())
    modules = (import_module(f"{root.name}.{name}.events") for name in having)
    return tuple(kind for module in modules for kind in module.SOURCES)


def open_events(
    files: Sequence[Path], window: Window, *, image: Path | None = None, force: bool = False
) -> EventSource:
    """Traces of programs, or with ``image`` the stream of a boot tracer, which does not say whose
    it is. Raises InputError, and UsageError for what cannot be reported together, or lacks what the
    window's filters need."""
    source = _opened(files, window, image=image, force=force)
    try:
        require_calls(source)
    except BaseException:
        source.close()
        raise
    return source


def follow_events(sources: Sequence[OpenFile], window: Window, pace: Pace) -> EventSource:
    """Open traces of programs that may still run, followed as ``pace`` says. Raises InputError,
    and UsageError for what cannot be followed together, or filters that need what comes later."""
    from ftpatch.trace.events import follow_source

    source = follow_source(sources, window, source_kinds(), pace)
    try:
        require_calls(source)
        require_known_early(source)
    except BaseException:
        source.close()
        raise
    return source


def _opened(
    files: Sequence[Path], window: Window, *, image: Path | None, force: bool
) -> EventSource:
    from ftpatch.trace.events import open_source

    if image is None or len(files) != 1 or not files[0].is_file():
        return open_source(files, window, source_kinds())
    from ftpatch.boot import is_stream, open_stream
    from ftpatch.image import open_image

    if not is_stream(files[0]):
        return open_source(files, window, source_kinds())
    return open_stream(files[0], open_image(image), window, force=force)


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
