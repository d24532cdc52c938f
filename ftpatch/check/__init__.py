"""Whether an image's table and its sites are sound: invariants, each with a name, and for a kernel
the ftrace bug that its ftrace_init would report.

A rule gives the addresses at which its invariant is broken, and for each what is wrong there. A
kernel as its distribution ships it breaks none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ftpatch.bug import bug_text
from ftpatch.check.code import foreign, overlapping, relocated, undone, unknown, unlinked, unplaced
from ftpatch.check.findings import Check, Finding
from ftpatch.check.functions import off_entry
from ftpatch.check.notrace import in_notrace
from ftpatch.check.records import outside, repeated, unaligned, unfilled, unsorted
from ftpatch.check.rows import Broken
from ftpatch.errors import NoTable
from ftpatch.forecast import forecast
from ftpatch.image import open_image
from ftpatch.sites import Sites, read_sites

__all__ = ["INVARIANTS", "Check", "Finding", "check_image", "check_sites"]

Rule = Callable[[Sites], Broken]

RULES: dict[str, tuple[str, Rule]] = {
    "record-unique": ("each site has one record", repeated),
    "record-relocated": ("each slot of a module's table is filled when it is loaded", unfilled),
    "record-in-text": ("each record is in executable text that the file holds", outside),
    "record-aligned": ("each site is aligned as an instruction", unaligned),
    "record-sorted": ("a table that was sorted when the kernel was built still is", unsorted),
    "record-in-function": ("a record in a function is at the function's entry", off_entry),
    "notrace-place": ("no site is in code that must not be traced", in_notrace),
    "site-placed": (
        "symbols tell where in a pad longer than a call the function begins",
        unplaced,
    ),
    "site-overlap": ("no two sites share a byte", overlapping),
    "site-relocated": ("no relocation writes over a site when the file is loaded", relocated),
    "call-relocation": ("each call of a module has its relocation", unlinked),
    "call-kept": ("no call is one that ftrace_init turns into a NOP unasked", undone),
    "site-known": ("each site holds a known NOP or a call", unknown),
    "site-target": (
        "each call goes to one of the image's own ftrace entries, or where the journal says",
        foreign,
    ),
}
"""Name, what holds, and the rule that finds where it does not."""

INVARIANTS: dict[str, str] = {
    "table-found": "the image has a table of call sites, which only a module may lack",
    **{name: words for name, (words, _) in RULES.items()},
    "ftrace_init": "the kernel's ftrace_init accepts every record",
}
"""All names, in the order of findings, and what holds."""


def check_image(path: Path) -> Check:
    """Check a file. Raises InputError only for what cannot be read as an image."""
    image = open_image(path)
    try:
        return check_sites(read_sites(image))
    except NoTable as error:
        if image.container == "module":  # all of its functions may be notrace
            return Check((), None)
        return Check((Finding("table-found", 0, "", f"{error.reason}; {error.hint}"),), None)


def check_sites(sites: Sites) -> Check:
    """Check every invariant. Nothing is raised: what parses gets findings."""
    found: list[Finding] = []
    for name, (_, rule) in RULES.items():
        ip, messages = rule(sites)
        places = sites.image.kallsyms.places(ip) if len(ip) else []
        rows = zip(ip.tolist(), places, messages, strict=True)
        found += [Finding(name, at, place, message) for at, place, message in rows]
    if not sites.abi.kernel:
        return Check(tuple(found), None)
    outlook = forecast(sites)
    if outlook.bug is not None:
        bug = outlook.bug
        message = "ftrace_init will refuse this record, and ftrace is off from there on"
        place = bug.place if bug.symbol else ""
        found.append(Finding("ftrace_init", bug.ip, place, message, bug_text(bug)))
    return Check(tuple(found), outlook)
