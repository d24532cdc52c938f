"""``python -m ftpatch``."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # see ftpatch.cli.main

from ftpatch.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
