# SPDX-License-Identifier: MIT
"""The table of what `check` predicted of broken kernels and modules, and what the kernel said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from .qemu import FtraceBug

__all__ = ["DIFFERS", "PROPERTY", "Row", "render", "summary"]

PROPERTY = "oracle"
"""Under this name a test hands its row to the process that prints the table."""

LOADER = "x86_64's loader refuses a call's relocation over a NOP; no ftrace bug comes of it"
NULL = "a module does not tell whether its kernel tests for null before it adjusts the record"
DIFFERS: dict[tuple[str, str], str] = {
    ("6.1-amd64", "dummy.ko nop_under_its_relocation"): LOADER,
    ("6.12-amd64", "dummy.ko nop_under_its_relocation"): LOADER,
    ("6.12-arm64", "dummy.ko record_of_zero"): NULL,
    ("6.12-ppc64el", "dummy.ko record_of_zero"): NULL,
}
"""(kernel, breakage): why this kernel says something else than `check` foretells."""


@dataclass(frozen=True)
class Row:
    """One boot of something broken."""

    kernel: str  # "6.1-amd64"
    image: str  # "vmlinux", "dummy.ko"
    breakage: str
    place: str  # the function whose site or record it is
    predicted: str
    said: str
    findings: str  # what else `check` names
    agreed: bool

    def properties(self) -> dict[str, object]:
        return asdict(self)


def summary(bug: FtraceBug | None, entries: int | None = None, more: str = "") -> str:
    """A line on what was predicted, or printed."""
    words = [f"{entries} entries"] if entries is not None else []
    if bug is None:
        words.insert(0, "no bug")
    else:
        words.insert(0, bug.kind.removeprefix("ftrace "))
        words += [f"actual {bug.actual}"] if bug.actual else []
        words += [f"expected {bug.expected}"] if bug.expected else []
    return ", ".join([*words, more] if more else words)


def render(rows: Iterable[Row]) -> list[str]:
    """The table, and its sum."""
    every = sorted(rows, key=lambda r: (r.image, r.kernel, r.breakage, r.place))
    cells = [("KERNEL", "IMAGE", "BREAKAGE", "PLACE", "AGREED", "SAID", "FINDINGS OF CHECK")]
    for row in every:
        said = row.said if row.agreed else f"{row.said} (PREDICTED: {row.predicted})"
        agreed = "yes" if row.agreed else "NO"
        cells.append((row.kernel, row.image, row.breakage, row.place, agreed, said, row.findings))
    width = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, cell, width)).rstrip() for cell in cells]
    count = sum(row.agreed for row in every)
    bugs = sum("failed to" in row.said or "faulted on" in row.said for row in every)
    return [*lines, f"{len(every)} boots, {bugs} ftrace bugs, {count} predictions agree"]
