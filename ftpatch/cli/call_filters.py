# SPDX-License-Identifier: MIT
"""Options that select single calls, in uftrace's words: of ``report``, and of what ``trace``
reports."""

from __future__ import annotations

from typing import Annotated

import typer

from ftpatch.api.call_filters import CallFilters

__all__ = ["MaxCalls", "MaxDepth", "Only", "TimeFilter", "Trigger", "call_filters"]

Only = Annotated[
    list[str],
    typer.Option(
        "-F",
        "--only",
        metavar="GLOB",
        help="Show only calls of these functions, and everything they call. Repeatable.",
    ),
]
MaxDepth = Annotated[
    int | None,
    typer.Option(
        "-D",
        "--max-depth",
        metavar="N",
        min=1,
        help="Levels of calls to show, from the outermost call or from each -F function.",
    ),
]
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
        help="Show calls only once this function has been called (on), or only until then (off). "
        "Repeatable.",
    ),
]


def call_filters(
    only: list[str],
    max_depth: int | None,
    time_filter: str | None,
    max_calls: int | None,
    trigger: list[str],
) -> CallFilters:
    """The filters that these options ask for."""
    return CallFilters(
        only=tuple(only),
        depth=max_depth,
        least=time_filter,
        calls=max_calls,
        triggers=tuple(trigger),
    )
