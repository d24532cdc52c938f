# SPDX-License-Identifier: MIT
"""``python -m ftpatch``."""

import signal

if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # see ftpatch.cli.main

from ftpatch.cli import main

if __name__ == "__main__":
    main()
