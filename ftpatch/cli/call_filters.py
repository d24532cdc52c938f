# SPDX-License-Identifier: MIT
"""Options that select single calls, in uftrace's words: of ``report``, and of what ``trace``
reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.trace import EventSource
    from ftpatch.trace.source import SourceKind
    from ftpatch.trace.window import Window

__all__ = [
    "CallFilters",
    "Levels",
    "MaxCalls",
    "MaxDepth",
    "Only",
    "TimeFilter",
    "Trigger",
    "require_calls",
]

LEVELS = "Levels of calls to show, from the outermost call or from each -F function."
Only = Annotated[
    list[str],
    typer.Option(
        "-F",
        "--only",
        metavar="GLOB",
        help="Show only calls of these functions, and everything they call. Repeatable.",
    ),
]
MaxDepth = Annotated[int | None, typer.Option("-D", "--max-depth", metavar="N", min=1, help=LEVELS)]
Levels = Annotated[
    int | None, typer.Option("-D", "--max-depth", "--depth", metavar="N", min=1, help=LEVELS)
]
"""The same for ``report``, where its former name, ``--depth``, is taken still."""
TimeFilter = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--time-filter",
        metavar="TIME",
        help="Show only calls that took at least this long: 500ns, 10us, 1.5ms, 2s.",
    ),
]
MaxCalls = Annotated[
    int | None,
    typer.Option("--max-calls", metavar="N", min=1, help="Show only the first N calls."),
]
Trigger = Annotated[
    list[str],
    typer.Option(
        "--trigger",
        metavar="GLOB@on|off",
        help="Show calls only after this function was called (on), or no more once it was (off). "
        "Repeatable.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class CallFilters:
    """The options as given."""

    only: tuple[str, ...] = ()
    depth: int | None = None
    least: str | None = None
    calls: int | None = None
    triggers: tuple[str, ...] = ()

    def window(self, **others: Any) -> Window:  # noqa: ANN401 - fields of any type
        """A window with these and with other fields. Raises UsageError for what is malformed."""
        from ftpatch.trace.window import Window, parse_least, parse_trigger

        return Window(
            only=self.only,
            triggers=tuple(map(parse_trigger, self.triggers)),
            least=None if self.least is None else parse_least(self.least),
            depth=self.depth,
            calls=self.calls,
            **others,
        )

    def require_fit(self, kind: SourceKind) -> None:
        """Raise UsageError for what is malformed, and where this kind has no single calls."""
        from ftpatch.trace.choose import require_filters

        require_filters(self.window(), kind)


def require_calls(source: EventSource) -> None:
    """Raise UsageError where the source does not have what its window's filters need."""
    from ftpatch.trace.choose import require_filters

    recording = source.recording
    path: Path = recording.headers[0].path
    require_filters(recording.window, source.kind, path, returns=source.has_returns)
    if recording.window.least is not None and not recording.has_clock:
        reason = "the rate of its clock is not known, and --time-filter needs it"
        raise UsageError(path, reason, "use -F or --max-depth")
