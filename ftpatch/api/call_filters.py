# SPDX-License-Identifier: MIT
"""Filters that select single calls, in uftrace's words, and whether a recording has what they
need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.trace import EventSource
    from ftpatch.trace.source import SourceKind
    from ftpatch.trace.window import Window

__all__ = ["CallFilters", "named_as_parameters", "require_calls", "require_known_early"]

PARAMETERS = {
    "-F": "only",
    "--max-calls": "max_calls",
    "--max-depth": "max_depth",
    "--time": "time",
    "--time-filter": "time_filter",
    "--trigger": "trigger",
}
"""Names of the options for callers in Python."""
OPTION = re.compile(rf"(?<![^ ])({'|'.join(PARAMETERS)})(?![^ ])")


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

        for option, number in (("--max-depth", self.depth), ("--max-calls", self.calls)):
            if number is not None and number < 1:
                raise UsageError(None, f"{option} {number} is less than 1")
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


@contextmanager
def named_as_parameters() -> Iterator[None]:
    """Let a UsageError name the parameters of Python instead of the options."""
    try:
        yield
    except UsageError as error:
        reason, hint = (
            OPTION.sub(lambda found: PARAMETERS[found[1]], text)
            for text in (error.reason, error.hint)
        )
        raise UsageError(error.path, reason, hint) from None


def require_calls(source: EventSource) -> None:
    """Raise UsageError where the source does not have what its window's filters need."""
    from ftpatch.trace.choose import require_filters

    recording = source.recording
    path: Path = recording.headers[0].path
    require_filters(recording.window, source.kind, path, returns=source.has_returns)
    if recording.window.least is not None and not recording.has_clock:
        reason = "the rate of its clock is not known, and --time-filter needs it"
        raise UsageError(path, reason, "use -F or --max-depth")


def require_known_early(source: EventSource) -> None:
    """Raise UsageError for filters that say of an event only later whether it is shown: such a
    source cannot be followed."""
    from ftpatch.trace.source import Data

    window, path = source.recording.window, source.recording.headers[0].path
    late = [
        option
        for option, given in (("--trigger", window.triggers), ("--max-calls", window.calls))
        if given
    ]
    hint = "use it without --follow"
    if late:
        raise UsageError(
            path, f"{late[0]} needs all calls, and --follow shows them one by one", hint
        )
    if window.filters and source.kind.data & Data.HITS:
        reason = f"{window.filters[0]} needs all calls, and probes record them when they return"
        raise UsageError(path, reason, hint)
