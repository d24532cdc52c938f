# SPDX-License-Identifier: MIT
"""Selection of sites: set_ftrace_filter's globs (Documentation/trace/ftrace.rst).

Filters work in their order: a name or glob adds the functions it matches, with a leading ``!`` it
takes them away; ``@FILE`` stands for the lines of a file, and ``GLOB:mod:MODULE`` means functions
of the modules that a second glob matches. A function is known by every name of its address, those
of C++, Rust and D as ``spelling`` says. One that several share selects them all. The body of an
overridden weak function stands behind another function and has no name; it can be selected by its
address only.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.lost_records import find_lost
from ftpatch.ftrace.sites import Sites
from ftpatch.names.debug_strings import is_in_debug_strings
from ftpatch.names.demangle import MANGLED, demangled
from ftpatch.names.spelling import Wanted, is_glob, like, named
from ftpatch.names.suggest import meant

__all__ = [
    "MODULE",
    "STREAMS",
    "Selection",
    "expand",
    "linked",
    "near",
    "select_named",
    "select_sites",
    "unmatched",
]

LIST_LIMIT = 32 << 20
"""Bytes of a filter file at most."""
FEW = 4
"""Names up to which each is looked for by itself; a file may have thousands."""
TOLD = 3
"""Names that a message tells."""
STREAMS = (Path("/dev/fd"), Path("/proc/self/fd"))
"""Directories of a shell's <(...)."""
MODULE = ":mod:"
"""Between the functions and the module of a filter, as in set_ftrace_filter."""
ADDRESS = re.compile(r"0x[0-9a-fA-F]{1,16}")
"""A site may also be named by its address: a stripped image has nothing else."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters of a command line: functions to select, functions to exclude, and whether both are
    regular expressions instead of globs."""

    filters: Sequence[str] = field(default=())
    notrace: Sequence[str] = field(default=())
    regex: bool = False


def select_sites(
    sites: Sites, selection: Selection, missing: set[str] | None = None
) -> NDArray[np.bool_]:
    """Mask of the selected sites, bool[n]; all of them without a filter.

    Raises UsageError for a filter that matches no site, InputError for a filter file. With
    ``missing``, as for one of many modules, such filters are put there, and none need match.
    """
    if not selection.filters and not selection.notrace:
        return np.ones(len(sites), bool)
    names = _Names(sites)
    chosen = _chosen(names, selection, len(sites))
    if missing is not None:
        missing |= names.missing
    elif names.missing:
        raise unmatched(min(names.missing), [sites], regex=selection.regex)
    elif not chosen.any():
        raise UsageError(sites.image.path, "the filters select no site", "see `ftpatch list`")
    return chosen


def select_named(
    names: Sequence[str], behind: str, selection: Selection, missing: set[str]
) -> NDArray[np.bool_]:
    """Mask of the selected ones of functions that are known by their ``names`` alone, bool[n]; a
    filter may have ``behind`` at its end or not. Filters that match none are put into
    ``missing``."""
    found = _Plain(names, behind)
    chosen = _chosen(found, selection, len(names))
    missing |= found.missing
    return chosen


class _Matching(Protocol):
    """What filters are compared with."""

    def match(self, texts: list[str], regex: bool) -> NDArray[np.bool_]:
        """Mask of what any of the texts matches."""


def _chosen(names: _Matching, selection: Selection, count: int) -> NDArray[np.bool_]:
    """Mask of what the filters leave, bool[count]."""
    filters = list(_expanded(selection.filters))
    # As with set_ftrace_filter, a first filter that takes away leaves all the others.
    takes = bool(filters) and filters[0].startswith("!")
    chosen = np.full(count, not selection.filters or takes)
    for removes, group in groupby(filters, key=lambda text: text.startswith("!")):
        texts = [text.removeprefix("!") for text in group]
        matched = names.match(texts, selection.regex)
        chosen = chosen & ~matched if removes else chosen | matched
    if selection.notrace:
        chosen &= ~names.match(list(_expanded(selection.notrace)), selection.regex)
    return chosen


class _Plain:
    """Names of functions without a place."""

    def __init__(self, names: Sequence[str], behind: str) -> None:
        self.missing: set[str] = set()
        self._forms = [list(names), [name + behind for name in names]]
        self._sources = [i for i, name in enumerate(names) if name.startswith(MANGLED)]

    def match(self, texts: list[str], regex: bool) -> NDArray[np.bool_]:
        """Names that any of the texts matches; those that match none are added to ``missing``."""
        hit = np.zeros(len(self._forms[0]), bool)
        for text in texts:
            wanted = Wanted(text, regex=regex)
            plain, full = (wanted.match(names, self._sources) for names in self._forms)
            if not (plain | full).any():
                self.missing.add(text)
            hit |= plain | full
        return hit


def unmatched(text: str, every: Sequence[Sites], *, regex: bool) -> UsageError:
    """The error for a filter that matches none of these sites: names that may have been meant, or
    the functions that it does match and that lost their record."""
    path = every[0].image.path
    reason = f"filter {text!r} matches no site"
    for sites in every:
        lost = find_lost(sites)
        hit = _Names(sites, lost.ip).match([text], regex).tolist()
        those = [name for name, matched in zip(lost.names(sites), hit, strict=True) if matched]
        if those:
            few = ", ".join(map(demangled, those[:TOLD])) + f" and {len(those) - TOLD} more" * (
                len(those) > TOLD
            )
            have = "has" if len(those) == 1 else "have"
            reason = f"{reason}, but {few} {have} {lost.what} but no record"
            return UsageError(sites.image.path, reason, "see `ftpatch check`")
    name = text.removeprefix("!").partition(MODULE)[0]
    hint = "see `ftpatch list`"
    if not any(len(sites.image.symbols.rows_named(name)) for sites in every):
        if not regex and any(is_in_debug_strings(sites.image, name) for sites in every):
            reason += ": inlined wherever it is called, or no function"
        hint = meant(like(name, [one for sites in every for one in near(sites, name)]), hint)
    return UsageError(path, reason, hint)


def near(sites: Sites, name: str) -> list[str]:
    """Names of functions with a site that ``name`` was perhaps meant to be, at most SHOWN."""
    return [] if ADDRESS.fullmatch(name) else like(name, _Names(sites).names)


def expand(selection: Selection) -> Selection:
    """The same with the lines of its filter files in their place. Raises InputError."""
    return Selection(
        list(_expanded(selection.filters)), list(_expanded(selection.notrace)), selection.regex
    )


def linked(selection: Selection, bias: int) -> tuple[Selection, dict[str, str]]:
    """An expanded selection for a file that is loaded ``bias`` bytes above its link address, whose
    sites have other addresses there; and each of its patterns -> as it was."""
    was = dict[str, str]()

    def one(text: str) -> str:
        bare = text.removeprefix("!")
        if ADDRESS.fullmatch(bare):
            here = hex((int(bare, 16) - bias) % (1 << 64))
            was[here] = bare
            return text[: -len(bare)] + here
        return text

    filters, notrace = list(map(one, selection.filters)), list(map(one, selection.notrace))
    return Selection(filters, notrace, selection.regex), was


def _expanded(filters: Sequence[str]) -> Iterator[str]:
    """Filters with the lines of files in their place; ``!@FILE`` removes each of them."""
    for text in filters:
        bare = text.removeprefix("!")
        if not bare.startswith("@"):
            yield text
            continue
        path = Path(bare[1:])
        if path.exists() and not path.is_file() and path.parent not in STREAMS:
            raise InputError(path, "not a regular file", "use a list of functions")
        try:
            with path.open("rb") as file:
                raw = file.read(LIST_LIMIT + 1)
            if len(raw) > LIST_LIMIT:
                raise InputError(path, f"the filter file is larger than {LIST_LIMIT} bytes")
            lines = raw.decode("utf-8").splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise InputError(path, f"cannot read the filter file: {reason}") from None
        for line in map(str.strip, lines):
            if line and not line.startswith("#"):
                yield text[: -len(bare)] + line if bare != text else line


class _Names:
    """Names of all functions that have a site, or of those at the sites ``ip``, uint64[n]."""

    def __init__(self, sites: Sites, ip: NDArray[np.uint64] | None = None) -> None:
        self.path = sites.image.path
        self.module = sites.image.module_name
        self.missing: set[str] = set()
        self.ip, self.lead = sites.ip if ip is None else ip, sites.lead
        kallsyms = sites.image.kallsyms
        self.group = kallsyms.groups_of(self.ip)
        with_site = np.zeros(len(kallsyms.start) + 1, bool)
        with_site[self.group] = True
        self.known = (self.group >= 0) & (self.ip < kallsyms.ends[self.group])
        rows = np.flatnonzero(with_site[kallsyms.group])
        self.names = kallsyms.symbols.names(kallsyms.row[rows])
        mangled = kallsyms.symbols.begin(kallsyms.row[rows], [one.encode() for one in MANGLED])
        self._sources: list[int] = np.flatnonzero(mangled).tolist()
        self.owner = kallsyms.group[rows]
        self.groups = len(kallsyms.start)

    def match(self, texts: list[str], regex: bool) -> NDArray[np.bool_]:
        """Sites that any of the texts matches; those that match none are added to ``missing``."""
        hit = np.zeros(len(self.names), bool)
        by_address = np.zeros(len(self.ip), bool)
        globs = []
        for text in texts:
            functions, of_module, module = text.rpartition(MODULE)
            if of_module and not fnmatch.fnmatchcase(self.module, module.replace("-", "_")):
                self.missing.add(text)
            elif ADDRESS.fullmatch(text):
                address = np.uint64(int(text, 16))
                at = (self.ip == address) | (self.ip - np.uint64(self.lead) == address)
                if not at.any():
                    self.missing.add(text)
                by_address |= at
            else:
                globs.append((text, (functions or "*") if of_module else text))
        plain = set() if regex else {name for _, name in globs if not is_glob(name)}
        if len(plain) > FEW:
            found, missed = named(plain, self.names, self._sources)
            self.missing.update(text for text, name in globs if name in missed)
            hit |= found
            globs = [(text, name) for text, name in globs if name not in plain]
        for text, name in globs:
            matched = Wanted(name, regex=regex).match(self.names, self._sources)
            if not matched.any():
                self.missing.add(text)
            hit |= matched
        chosen = np.zeros(self.groups + 1, bool)
        chosen[self.owner[hit]] = True
        return np.asarray(chosen[self.group] & self.known | by_address)
