# SPDX-License-Identifier: MIT
"""``ftpatch list``: every site."""

from __future__ import annotations

from ftpatch.cli.console import json_line, table
from ftpatch.cli.options import Filter, Format, Image, Json, Notrace, Regex, wants_json
from ftpatch.cli.paint import of_state

__all__ = ["command"]


def command(
    image: Image,
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    json: Json = False,
    format_: Format = None,
) -> None:
    """List sites: address, function, state and callee.

    Example: ftpatch list vmlinux -f 'vfs_*'
    """
    as_json = wants_json(json, format_)
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
