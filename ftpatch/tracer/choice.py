# SPDX-License-Identifier: MIT
"""Choosing the functions to trace, of a program and its libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import UsageError
from ftpatch.ftrace.filter import Selection, expand, select_named, select_sites, unmatched
from ftpatch.ftrace.sites import Sites
from ftpatch.inject.runtime import RECORDING
from ftpatch.names.plt import PLT, Plt

__all__ = ["Choice", "require_tracer"]


class Choice:
    """A selection among the functions of a program and its libraries together."""

    def __init__(self, selection: Selection) -> None:
        self._selection = expand(selection)
        self._missing: set[str] | None = None
        self._selected = 0
        self._seen: list[Sites] = []

    def of(self, sites: Sites) -> NDArray[np.bool_]:
        """Select sites of one image, bool[n]."""
        missing = set[str]()
        mask = select_sites(sites, self._selection, missing)
        self._seen.append(sites)
        return self._counted(mask, missing)

    def of_calls(self, plt: Plt) -> Plt:
        """Select library calls of one image, by the names of what is called."""
        missing = set[str]()
        mask = select_named(plt.names, PLT, self._selection, missing)
        return plt.take(self._counted(mask, missing))

    def require(self, program: Path) -> None:
        """Raise UsageError for a filter that matches nothing anywhere, or if no site is left."""
        if self._missing and not self._seen:
            text = min(self._missing)
            raise UsageError(program, f"filter {text!r} matches no function and no library call")
        if self._missing:
            error = unmatched(min(self._missing), self._seen, regex=self._selection.regex)
            raise UsageError(program, error.reason, error.hint)
        if not self._selected:
            raise UsageError(program, "the filters select no site", "see `ftpatch list`")

    def _counted(self, mask: NDArray[np.bool_], missing: set[str]) -> NDArray[np.bool_]:
        self._missing = missing if self._missing is None else self._missing & missing
        self._selected += int(mask.sum())
        return mask


def require_tracer(name: str, option: str) -> None:
    """Raise UsageError for a tracer that does not support libraries, which ``option`` asks for."""
    if name not in RECORDING:
        use = f"use {', '.join(RECORDING)}"
        raise UsageError(None, f"{option} does not work with the {name} tracer", use)
