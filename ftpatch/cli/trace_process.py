# SPDX-License-Identifier: MIT
"""``ftpatch trace --pid``: trace a running process for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.cli.attended import Attending, attended, require_time
from ftpatch.cli.process_update import readable_images
from ftpatch.tracer.attach import choose
from ftpatch.tracer.live import attach

if TYPE_CHECKING:
    from ftpatch.process.attached import Live
    from ftpatch.process.process import Process
    from ftpatch.tracer.run import Request

__all__ = ["trace_process"]


def trace_process(
    process: Process,
    request: Request,
    report: Callable[[Sequence[Path]], None],
    seconds: float | None,
) -> None:
    """Trace a process that ftpatch is not in until ``seconds`` are over, it ends or a signal asks
    for it, and ``report``. Raises what attaching raises, and InputError where something could not
    be taken out."""
    require_time(seconds)
    loaded = readable_images(process)
    chosen = choose(loaded, request.selection, request.libraries)

    def traced(environment: dict[str, str], trace: str, asked: Callable[[], bool]) -> Live:
        return attach(process, loaded, chosen, request.tracing, environment, trace, asked=asked)

    one = Attending(
        process=process,
        image=loaded[0].path,
        doing="tracing",
        done=("site", "traced"),
        recording=request.recording,
        overwrite=request.overwrite,
        seconds=seconds,
    )
    attended(one, traced, report)
