# SPDX-License-Identifier: MIT
"""``ftpatch list``: every site."""

from __future__ import annotations

from ftpatch.cli.console import json_line, table
from ftpatch.cli.options import Filter, Format, Image, Json, Notrace, Regex, wants_json

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
    from ftpatch.arch import State
    from ftpatch.ftrace.filter import Selection, select_sites
    from ftpatch.ftrace.sites import read_sites
    from ftpatch.image import open_image
    from ftpatch.names.demangle import demangled

    sites = read_sites(open_image(image))
    mask = select_sites(sites, Selection(filter_, notrace, regex))
    ip = sites.ip[mask]
    places = sites.image.kallsyms.lookup(ip)
    names = ("", *sites.targets.name)
    index = sites.targets.index(sites.addr[mask]) + 1
    index[sites.state[mask] != State.CALL] = 0
    states = [State(value).name.lower() for value in range(len(State))]
    rows = zip(
        ip.tolist(),
        (sites.offset[mask] + sites.lead).tolist(),
        places,
        sites.state[mask].tolist(),
        index.tolist(),
        sites.dropped[mask].tolist(),
        strict=True,
    )
    if as_json:
        for at, offset, (name, into, _), state, target, dropped in rows:
            json_line(
                {
                    "ip": hex(at),
                    "offset": offset,
                    "symbol": name,
                    "symbol_offset": into,
                    "state": states[state],
                    "target": names[target],
                    "dropped": dropped,
                }
            )
        return
    table(
        ("ip", "symbol", "state", "calls", "record"),
        (
            (
                hex(at),
                f"{demangled(name)}+{into:#x}" if name else "",
                states[state],
                demangled(names[target]),
                "dropped" if dropped else "",
            )
            for at, _, (name, into, _), state, target, dropped in rows
        ),
    )
