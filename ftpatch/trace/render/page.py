# SPDX-License-Identifier: MIT
"""A page for browsers: one file that needs no network, and whose views are scripts in ``web``."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ftpatch.names.short_names import short_name
from ftpatch.trace.render.style import Style
from ftpatch.trace.source import Recording

__all__ = ["Section", "page"]

WEB = Path(__file__).with_name("web")
PLACE = re.compile(r"\{\{(\w+)\}\}")
"""A place in page.html, by its name."""
ESCAPED: dict[str, str | int | None] = {c: f"\\u{ord(c):04x}" for c in "<>&"}
"""Characters to escape in JSON in a page: it could end the script."""
Section = Mapping[str, Any]
"""The columns that a view shows; ``function`` is an array of functions of the recording."""


def page(
    recording: Recording,
    style: Style,
    notes: Sequence[str],
    sections: Mapping[str, Section],
    *,
    hits: bool = False,
) -> Iterator[str]:
    """Render views by name, one script in ``web`` for each; ``flame`` must be one of them, whose
    numbers are ``hits`` instead of times."""
    origin = recording.headers[0]
    css = _text("page.css")
    script = "".join(_text(f"{name}.js") for name in ("base", *sections, "page"))
    pieces = {
        "title": html.escape(style.clean(f"{origin.comm} {origin.pid}")),
        "policy": f"default-src 'none'; style-src {_digest(css)}; script-src {_digest(script)}",
        "style": css,
        "script": script,
        "data": _json(recording, style, notes, sections, "hits" if hits else ""),
    }
    _, _, template = _text("page.html").partition("\n")
    for number, piece in enumerate(PLACE.split(template)):
        yield pieces[piece] if number % 2 else piece


def _text(name: str) -> str:
    return (WEB / name).read_text("utf-8")


def _digest(text: str) -> str:
    """A source of a Content-Security-Policy: this text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(
    recording: Recording,
    style: Style,
    notes: Sequence[str],
    sections: Mapping[str, Section],
    unit: str,
) -> str:
    """The data, with the functions that occur numbered anew."""
    functions = recording.functions
    occurring = [section["function"] for section in sections.values()]
    used = np.unique(np.concatenate(occurring).astype(np.int64))
    known = style.names(functions)
    names = [known[i] for i in used.tolist()]
    labels = map(short_name, names)
    data: dict[str, Any] = {
        "unit": unit or ("ns" if recording.has_clock else "ticks"),
        "notes": list(notes),
        "names": names,
        "labels": ["" if a == b else a for a, b in zip(labels, names, strict=True)],
        "sources": [style.clean(functions.source[i]) for i in used.tolist()],
    }
    for name, section in sections.items():
        function = np.searchsorted(used, section["function"])
        data[name] = {**section, "function": function}
    text = json.dumps(data, default=np.ndarray.tolist, separators=(",", ":"))
    return text.translate(str.maketrans(ESCAPED))
