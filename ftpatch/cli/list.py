# SPDX-License-Identifier: MIT
"""``ftpatch list``: every site."""

from __future__ import annotations

from typing import Annotated

import typer

from ftpatch.cli.console import json_line, table
from ftpatch.cli.options import (
    Core,
    Filter,
    Format,
    Json,
    Notrace,
    OptionalImage,
    Pid,
    Regex,
    require_input,
    require_kernel,
    wants_json,
)
from ftpatch.cli.paint import of_state
from ftpatch.errors import Exit, UsageError

__all__ = ["command"]


def command(
    image: OptionalImage = None,
    pid: Pid = None,
    core: Core = None,
    lib: Annotated[
        list[str],
        typer.Option(
            "--lib",
            metavar="GLOB",
            help="Images of the process to list, by name or path (* ? []) [default: all]. "
            "Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    filter_: Filter = [],  # noqa: B006
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    json: Json = False,
    format_: Format = None,
) -> None:
    """List sites: address, function, state and callee.

    With --pid, of each image that the process has loaded, as it is in memory. With --core, of a
    kernel that crashed, or that runs, and who traced each site.

    Example: ftpatch list vmlinux -f 'vfs_*'
    """
    as_json = wants_json(json, format_)
    images, pids = [] if image is None else [image], [] if pid is None else [pid]
    if core is not None:
        from ftpatch.cli.list_core import list_core
        from ftpatch.ftrace.filter import Selection

        if lib:
            raise UsageError(None, "--lib selects images of a process", "use it with --pid")
        kernel = require_kernel(images, pids)
        list_core(kernel, core, Selection(filter_, notrace, regex), as_json=as_json)
        return
    require_input(images, pids)
    if pid is not None:
        from ftpatch.cli.list_process import list_process
        from ftpatch.ftrace.filter import Selection

        if not list_process(pid, Selection(filter_, notrace, regex), lib, as_json=as_json):
            raise typer.Exit(Exit.ERROR)
        return
    if lib:
        raise UsageError(None, "--lib selects images of a process", "use it with --pid")
    assert image is not None
    from ftpatch.api.site_columns import Sites
    from ftpatch.ftrace.sites import read_sites
    from ftpatch.image import open_image
    from ftpatch.names.demangle import demangled

    sites = Sites(read_sites(open_image(image))).select(filter_, notrace=notrace, regex=regex)
    if as_json:
        for site in sites:
            json_line(site._asdict() | {"ip": hex(site.ip)})
        return
    table(
        ("ip", "symbol", "state", "calls", "record"),
        (
            (
                hex(site.ip),
                f"{demangled(site.symbol)}+{site.symbol_offset:#x}" if site.symbol else "",
                of_state(site.state),
                demangled(site.target),
                of_state("dropped") if site.dropped else "",
            )
            for site in sites
        ),
        spare=("record", "calls"),
    )
