"""Options of the boot tracer, for enable and boot."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["BOOT", "Most", "Sink", "Time", "Until"]

BOOT = "boot"
"""Name of the tracer."""

Sink = Annotated[
    str,
    typer.Option(
        "--sink",
        metavar="SINK",
        help="Where the boot tracer sends events: debugcon (x86, the default there) or serial, "
        "semihosting (arm64).",
    ),
]
Until = Annotated[
    str,
    typer.Option(
        "--until", metavar="FUNC", help="Stop the boot tracer when this function is called."
    ),
]
Most = Annotated[
    int | None, typer.Option("--max", metavar="N", help="Stop the boot tracer after N events.")
]
Time = Annotated[bool, typer.Option("--time", help="Have the boot tracer record times, too.")]
