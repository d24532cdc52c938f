# SPDX-License-Identifier: MIT
"""Tables: aligned columns under a line of names. On a terminal they are made to fit its width."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

from ftpatch.cli.paint import BOLD, RESET, Word, clean, is_coloured, is_drawn_on, painted
from ftpatch.cli.progress import room_on

__all__ = ["table"]

GAP = "  "
COMFORT, LEAST = 16, 8
"""Widths to which text is folded before a column is left out, and after that."""
WHOLE = re.compile(r"0x[0-9a-fA-F]+")
"""Addresses are not folded."""
BREAKS = (re.compile(r"\s"), re.compile(r"[/_.,:<(+-]"))
"""Text is best folded after one of these, the first ones first."""

Row = list[str]


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | int]],
    numbers: Iterable[int] = (),
    *,
    spare: Sequence[str] = (),
) -> None:
    """Print a table. Columns whose index is in ``numbers`` are aligned to the right; ``spare``
    names those that a narrow terminal may do without, the least important first."""
    right = {*numbers}
    body = [[cell if isinstance(cell, Word) else clean(str(cell)) for cell in row] for row in rows]
    heads = [name.upper() for name in columns]
    if not is_drawn_on(sys.stdout):
        _plain([heads, *body], right)
        return
    room = shutil.get_terminal_size().columns
    every = [heads, *body]
    widths = _widths(heads, body)
    left_out: list[int] = []
    floors = [
        widths[i] if i in right else max(LEAST, *(_unbroken(row[i]) for row in every))
        for i in range(len(heads))
    ]
    fitted = _fit(widths, [max(floor, COMFORT) for floor in floors], room)
    for name in spare:
        if fitted is not None:
            break
        left_out.append(columns.index(name))
        kept = [i for i in range(len(heads)) if i not in left_out]
        fitted = _fit([widths[i] for i in kept], [max(floors[i], COMFORT) for i in kept], room)
    kept = [i for i in range(len(heads)) if i not in left_out]
    widths, floors = [widths[i] for i in kept], [floors[i] for i in kept]
    fitted = fitted or _fit(widths, floors, room) or list(map(min, widths, floors))
    right = {at for at, i in enumerate(kept) if i in right}
    body = [[row[i] for i in kept] for row in body]
    out = [*_drawn([heads[i] for i in kept], body, fitted, right)]
    if left_out:
        out.append(f"(no room for {', '.join(heads[i] for i in sorted(left_out))})")
    with room_on(sys.stdout):
        sys.stdout.writelines(f"{line}\n" for line in out)


def _plain(every: list[Row], right: set[int]) -> None:
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    with room_on(sys.stdout):
        for row in every:
            parts = [
                cell.rjust(width) if index in right else cell.ljust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            sys.stdout.write(GAP.join(parts).rstrip() + "\n")


def _widths(heads: Row, body: list[Row]) -> list[int]:
    return [max(map(_width, column)) for column in zip(heads, *body, strict=True)]


def _fit(widths: list[int], floors: list[int], room: int) -> list[int] | None:
    """The widths that fit, of columns that are folded no further than to their floors; None if
    there are none."""
    fitted = [*widths]
    over = sum(fitted) + len(GAP) * (len(fitted) - 1) - room
    while over > 0:
        widest = max(range(len(fitted)), key=lambda i: fitted[i] - min(fitted[i], floors[i]))
        if fitted[widest] <= floors[widest]:
            return None
        fitted[widest] -= 1
        over -= 1
    return fitted


def _drawn(heads: Row, body: list[Row], widths: list[int], right: Collection[int]) -> Iterator[str]:
    colours = is_coloured(sys.stdout)
    for line in _lines(heads, widths, right, colours=False):
        yield f"{BOLD}{line}{RESET}" if colours else line
    for row in body:
        yield from _lines(row, widths, right, colours=colours)


def _lines(row: Row, widths: list[int], right: Collection[int], *, colours: bool) -> Iterator[str]:
    """The lines of a row: one, unless text has to be folded."""
    folded = [[*_folded(cell, width)] for cell, width in zip(row, widths, strict=True)]
    for at in range(max(map(len, folded))):
        line, blank = "", 0
        for index, (cell, width) in enumerate(zip(folded, widths, strict=True)):
            text = cell[at] if at < len(cell) else ""
            space = width - _width(text)
            before, after = (space, 0) if index in right else (0, space)
            if text:
                line += " " * (blank + before) + painted(text, colours=colours)
                blank = after + len(GAP)
            else:
                blank += width + len(GAP)
        yield line


def _folded(text: str, width: int) -> Iterator[str]:
    """Parts of at most this width, which begin after a separator if there is one near."""
    while _width(text) > width:
        cut = len(text)
        while _width(text[:cut]) > width:
            cut -= 1
        for one in WHOLE.finditer(text):
            if 0 < one.start() < cut < one.end():
                cut = one.start()
        if not WHOLE.match(text, cut) and not text[cut].isspace():
            near = (_last(one, text, cut) for one in BREAKS)
            cut = next(filter(None, near), cut)
        yield _like(text, text[:cut].rstrip())
        text = _like(text, text[cut:].lstrip())
    yield text


def _last(separator: re.Pattern[str], text: str, cut: int) -> int:
    """Where a part ends that is not much shorter than up to ``cut``; 0: nowhere."""
    return max((one.end() for one in separator.finditer(text, cut // 3, cut)), default=0)


def _like(whole: str, part: str) -> str:
    return Word(part, whole.tone) if isinstance(whole, Word) else part


def _unbroken(text: str) -> int:
    return max((len(one) for one in WHOLE.findall(text)), default=0)


def _width(text: str) -> int:
    """Columns that it takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
