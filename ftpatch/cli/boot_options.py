"""Options of the boot tracer, for enable and boot."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["BOOT", "Most", "Sink", "Time", "Until"]

BOOT = "boot"
"""Name of the boot tracer."""

Sink = Annotated[
    str,
    typer.Option(
        "--sink",
        metavar="SINK",
        help="Device that the boot tracer writes to: debugcon (default) or serial on x86, "
        "semihosting on arm64.",
    ),
]
Until = Annotated[
    str,
    typer.Option("--until", metavar="FUNC", help="Function whose call stops the boot tracer."),
]
Most = Annotated[
    int | None,
    typer.Option("--max", metavar="N", help="Maximum number of events that the boot tracer sends."),
]
Time = Annotated[bool, typer.Option("--time", help="Record timestamps in the boot trace.")]
