"""The command line: one file per verb. Only this package prints."""

from __future__ import annotations

from ftpatch.cli.app import main

__all__ = ["main"]
