# SPDX-License-Identifier: MIT
"""ftrace for ELF files and running processes.

    image = ftpatch.open("vmlinux")
    image.sites.symbol[image.sites.state == "call"]
    image.enable("vfs_*", output="vmlinux.vfs")
    ftpatch.Trace("shop.trace").columns()

docs/api.md has it all. What is named here is imported when it is used for the first time: an import
of ftpatch costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftpatch.api.attaching import Attached, Undone
    from ftpatch.api.differences import Difference, Differences
    from ftpatch.api.observing import Watching
    from ftpatch.api.opened import Image, open
    from ftpatch.api.probing import PlacedProbe, Probe, Probed
    from ftpatch.api.processes import LoadedImage, Process
    from ftpatch.api.site_columns import Site, Sites
    from ftpatch.api.trace_columns import Trace
    from ftpatch.api.traced_boot import Boot
    from ftpatch.api.trees import Tree, TreeOutcome
    from ftpatch.api.watching import Watch, Watched
    from ftpatch.errors import (
        FtpatchError,
        InputError,
        NoTable,
        OutputError,
        SiteRefused,
        UsageError,
    )
    from ftpatch.ftrace.check.findings import Check, Finding, Note
    from ftpatch.update.update import Outcome

__version__ = "1.0.0"
__all__ = [
    "__version__",
    "open",
    "Image",
    "Site",
    "Sites",
    "Outcome",
    "Check",
    "Finding",
    "Note",
    "Probe",
    "PlacedProbe",
    "Probed",
    "Watch",
    "Watched",
    "Difference",
    "Differences",
    "Tree",
    "TreeOutcome",
    "Boot",
    "Trace",
    "Process",
    "LoadedImage",
    "Attached",
    "Undone",
    "Watching",
    "FtpatchError",
    "InputError",
    "NoTable",
    "OutputError",
    "SiteRefused",
    "UsageError",
]
_HOMES = {
    "api.opened": ("open", "Image"),
    "api.site_columns": ("Site", "Sites"),
    "api.trace_columns": ("Trace",),
    "api.probing": ("Probe", "PlacedProbe", "Probed"),
    "api.watching": ("Watch", "Watched"),
    "api.differences": ("Difference", "Differences"),
    "api.trees": ("Tree", "TreeOutcome"),
    "api.processes": ("Process", "LoadedImage"),
    "api.attaching": ("Attached", "Undone"),
    "api.observing": ("Watching",),
    "api.traced_boot": ("Boot",),
    "update.update": ("Outcome",),
    "ftrace.check.findings": ("Check", "Finding", "Note"),
    "errors": (
        "FtpatchError",
        "InputError",
        "NoTable",
        "OutputError",
        "SiteRefused",
        "UsageError",
    ),
}


def __getattr__(name: str) -> object:
    """Import a name when it is used (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            found: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, imported or not."""
    return sorted({*globals(), *__all__})
