# SPDX-License-Identifier: MIT
"""Choosing the functions to trace, of a program and its libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import UsageError
from ftpatch.ftrace.filter import Selection, expand, select_named, select_sites, unmatched
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image
from ftpatch.inject.runtime import RECORDING, USER, tracer_named
from ftpatch.names.plt import PLT, Plt
from ftpatch.tracer.foreseen import Foreseen

__all__ = ["Choice", "require_tracer"]

LISTED: Final = "see `ftpatch list`"


class Choice:
    """A selection among the functions of a program and its libraries together."""

    def __init__(self, selection: Selection) -> None:
        self._selection = expand(selection)
        self.missing: set[str] | None = None
        """Filters that have matched nothing; None before any image was seen."""
        self._selected = 0
        self._seen: list[Sites] = []
        self.chosen = Foreseen()

    def of(self, sites: Sites) -> NDArray[np.bool_]:
        """Select sites of one image, bool[n]."""
        missing = set[str]()
        mask = select_sites(sites, self._selection, missing)
        self._seen.append(sites)
        self.chosen.add(sites.image, sites.ip[mask])
        return self._counted(mask, missing)

    def of_calls(self, image: Image, plt: Plt) -> Plt:
        """Select library calls of one image, by the names of what is called."""
        missing = set[str]()
        mask = select_named(plt.names, PLT, self._selection, missing)
        taken = plt.take(self._counted(mask, missing))
        self.chosen.add_calls(image, taken)
        return taken

    def require(self, program: Path, listed: str = LISTED) -> None:
        """Raise UsageError for a filter that matches nothing anywhere, or if no site is left,
        unless there are more to come. ``listed``: the hint that tells where all are listed."""
        if self.chosen.more:
            return
        if self.missing and not self._seen:
            text = min(self.missing)
            raise UsageError(program, f"filter {text!r} matches no function and no library call")
        if self.missing:
            error = unmatched(min(self.missing), self._seen, regex=self._selection.regex)
            raise UsageError(program, error.reason, listed if error.hint == LISTED else error.hint)
        if not self._selected:
            raise UsageError(program, "the filters select no site", listed)

    def _counted(self, mask: NDArray[np.bool_], missing: set[str]) -> NDArray[np.bool_]:
        self.missing = missing if self.missing is None else self.missing & missing
        self._selected += int(mask.sum())
        return mask


def require_tracer(name: str, option: str) -> None:
    """Raise UsageError for a tracer that does not support libraries, which ``option`` asks for."""
    if name not in RECORDING:
        use = f"use {', '.join(RECORDING)}"
        own = tracer_named(name) is USER
        if own:
            use += f", or `ftpatch enable LIBRARY --tracer {name}`"
        whose = "a tracer of your own" if own else f"the {name} tracer"
        raise UsageError(None, f"{option} does not work with {whose}", use)
