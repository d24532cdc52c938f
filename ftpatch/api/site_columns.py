# SPDX-License-Identifier: MIT
"""Sites as a user of Python meets them: columns, or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ftpatch.api.given import patterns
from ftpatch.arch import State
from ftpatch.core.columns import objects

if TYPE_CHECKING:
    from ftpatch.ftrace.sites import Sites as Read
    from ftpatch.process.loaded import Loaded

__all__ = ["Site", "Sites"]

STATES = np.array([state.name.lower() for state in State], object)


class Site(NamedTuple):
    """One site; the fields are those of ``ftpatch list --json``."""

    ip: int
    offset: int
    symbol: str
    symbol_offset: int
    state: str
    target: str
    dropped: bool


class Sites:
    """The n sites of an image, in the order of its table, as columns: numpy arrays of length n.

    ``ip`` uint64: virtual address. ``offset`` int64: of the site's code in the file. ``symbol``
    (str): the function that it is in, as the symbol table has it, empty where no symbol tells, and
    ``symbol_offset`` uint64: bytes from there. ``state`` (str): nop, call or unexpected. ``target``
    (str): what it calls, empty for what is no call. ``dropped`` bool: its record was dropped.

    In a process ``ip`` is the address there, state and target are as in its memory, and there is
    another column: ``differing`` bool: the code is not the file's.

    Iterating gives a Site for each, an index one of them; a mask, a slice or an array of indices
    gives some of them.
    """

    def __init__(
        self, read: Read, rows: NDArray[np.intp] | None = None, *, loaded: Loaded | None = None
    ) -> None:
        self._read = read
        self._loaded = loaded
        self._rows = np.arange(len(read)) if rows is None else rows
        self._columns: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Site]:
        return map(
            Site._make, zip(*(getattr(self, name).tolist() for name in Site._fields), strict=True)
        )

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> Site: ...
    @overload
    def __getitem__(self, rows: slice | NDArray[np.bool_] | NDArray[np.intp]) -> Sites: ...
    def __getitem__(
        self, rows: int | np.integer[Any] | slice | NDArray[np.bool_] | NDArray[np.intp]
    ) -> Site | Sites:
        if isinstance(rows, int | np.integer):
            (site,) = self._some(self._rows[[int(rows)]])
            return site
        return self._some(self._rows[rows])

    def __repr__(self) -> str:
        return f"<{len(self)} sites of {self._read.image.path}>"

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise AttributeError(f"sites have no column {name!r}")
        if name not in self._columns:
            self._columns |= self._made(name)
        return self._columns[name]

    if TYPE_CHECKING:
        ip: NDArray[np.uint64]
        offset: NDArray[np.int64]
        symbol: NDArray[np.object_]
        symbol_offset: NDArray[np.uint64]
        state: NDArray[np.object_]
        target: NDArray[np.object_]
        dropped: NDArray[np.bool_]
        differing: NDArray[np.bool_]

    @property
    def _names(self) -> tuple[str, ...]:
        return Site._fields if self._loaded is None else (*Site._fields, "differing")

    def _some(self, rows: NDArray[np.intp]) -> Sites:
        return Sites(self._read, rows, loaded=self._loaded)

    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns by name, for ``pandas.DataFrame`` and ``polars.DataFrame``."""
        return {name: getattr(self, name) for name in self._names}

    def select(
        self, filter: str | Sequence[str], *, notrace: str | Sequence[str] = (), regex: bool = False
    ) -> Sites:
        """Those that ``-f`` and ``-n`` select. Raises UsageError for a filter that matches none of
        the image's."""
        from ftpatch.ftrace.filter import Selection, select_sites, unmatched

        chosen = Selection(patterns("filter", filter), patterns("notrace", notrace), regex)
        if self._loaded is None:
            return self._some(self._rows[select_sites(self._read, chosen)[self._rows]])
        missing = set[str]()
        mask = self._loaded.select(chosen, missing)
        if missing:
            raise unmatched(min(missing), [self._read], regex=regex)
        return self._some(self._rows[mask[self._rows]])

    def _made(self, name: str) -> dict[str, NDArray[Any]]:
        """A column, and those that come with it."""
        read, rows = self._read, self._rows
        match name:
            case "symbol" | "symbol_offset":
                places = read.image.kallsyms.lookup(read.ip[rows])
                return {
                    "symbol": objects([name for name, _, _ in places]),
                    "symbol_offset": np.array([into for _, into, _ in places], np.uint64),
                }
            case "state":
                return {"state": STATES[read.state[rows]]}
            case "target":
                index = read.targets.index(read.addr[rows]) + 1
                index[read.state[rows] != State.CALL] = 0
                return {"target": objects(["", *read.targets.name])[index]}
            case "ip" if self._loaded is not None:
                return {"ip": read.ip[rows] + np.uint64(self._loaded.bias % (1 << 64))}
            case "differing" if self._loaded is not None:
                return {"differing": self._loaded.differing[rows]}
            case "offset":
                return {"offset": read.offset[rows] + read.lead}
        return {name: getattr(read, name)[rows]}
