# SPDX-License-Identifier: MIT
"""The command line: one file per verb. Only this package prints."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with one of the codes of ``errors.Exit``.

    Until everything is imported a signal just ends the process: an exception in the middle of an
    import would end in a traceback of other people's code.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as nohup's shell has it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as every filter: `ftpatch list | head`
    _open_closed_streams()
    from ftpatch.cli.guardian import outlive, outlives

    if outlives(sys.argv[1:]):
        outlive()
    # A command lives for a second: to look for cycles while libraries load, and to take them apart
    # at the end, would be a fifth of it.
    gc.disable()
    from ftpatch.image.prefetch import begin

    if sys.argv[1:2] != ["report"]:  # whose files are no images
        begin(sys.argv[2:])
    from ftpatch.cli.app import run

    code = run()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _open_closed_streams() -> None:
    """Give closed standard streams to /dev/null: nothing else may get their descriptors."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if number == 0 else "w"))  # noqa: SIM115, PTH123
