# SPDX-License-Identifier: MIT
"""The options of a command that writes, and what it wants of an image's sites."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites

__all__ = ["Planner", "Update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The options of a command that writes."""

    image: Path
    output: Path | None
    in_place: bool
    force: bool
    allow_setuid: bool
    dry_run: bool
    as_json: bool
    quiet: bool
    verbose: bool
    strip_signature: bool


@dataclass(frozen=True, kw_only=True)
class Planner(ABC):
    """Plans a verb's update of an image, or of each of many, by the options that select
    sites."""

    filters: Sequence[str]
    notrace: Sequence[str]
    regex: bool
    site: str | None
    keep_records: bool

    @abstractmethod
    def __call__(self, sites: Sites, missing: set[str] | None = None) -> Plan:
        """The plan. ``missing`` collects filters that match nothing in one of many modules; without
        it they are errors."""

    def selected(self, sites: Sites, missing: set[str] | None) -> NDArray[np.bool_]:
        """Mask of the chosen sites."""
        from ftpatch.ftrace.filter import Selection, select_sites

        return select_sites(sites, Selection(self.filters, self.notrace, self.regex), missing)

    def expanded(self) -> Self:
        """The same with the lines of filter files in their place: a pipe can be read once."""
        from ftpatch.ftrace.filter import Selection, expand

        lists = expand(Selection(self.filters, self.notrace, self.regex))
        return replace(self, filters=lists.filters, notrace=lists.notrace)
