# SPDX-License-Identifier: MIT
"""Soundness of an image's table and its sites: invariants, each with a name, and for a
kernel the ftrace bug that its ftrace_init would report.

A rule gives the addresses at which its invariant is broken, and for each what is wrong there. A
kernel as its distribution ships it breaks none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ftpatch.errors import NoTable
from ftpatch.ftrace.check.code_rules import (
    foreign,
    overlapping,
    relocated,
    undone,
    unknown,
    unlinked,
    unplaced,
    unstarted,
)
from ftpatch.ftrace.check.findings import Broken, Check, Finding, Note
from ftpatch.ftrace.check.function_rules import off_entry, recorded, unrecorded
from ftpatch.ftrace.check.named_site_rules import astray
from ftpatch.ftrace.check.notrace_rules import in_notrace
from ftpatch.ftrace.check.record_rules import (
    outside,
    repeated,
    unaligned,
    unfilled,
    unmoved,
    unsorted,
)
from ftpatch.ftrace.dropped_records import unrecorded_sites
from ftpatch.ftrace.ftrace_bug import bug_text
from ftpatch.ftrace.ftrace_init import predict
from ftpatch.ftrace.sites import Sites, read_sites
from ftpatch.image import Image

__all__ = [
    "CALLEE_KNOWN",
    "CODE_AS_FILE",
    "INVARIANTS",
    "IN_CORE",
    "IN_MEMORY",
    "Check",
    "Finding",
    "Note",
    "PROBE_CALLED",
    "TEXT_EXPLAINED",
    "check_open",
    "check_sites",
    "invariants_of",
]

Rule = Callable[[Sites], Broken]

RULES: dict[str, tuple[str, Rule]] = {
    "record-unique": ("each site has one record", repeated),
    "record-relocated": ("each slot of a module's table is filled when it is loaded", unfilled),
    "record-moved": ("KASLR moves each record of a kernel, and none that is null", unmoved),
    "record-in-text": ("each record is in executable text that the file holds", outside),
    "record-aligned": ("each site is aligned as an instruction", unaligned),
    "record-sorted": ("a table sorted at build time still is", unsorted),
    "record-in-function": ("a record in a function is at the function's entry", off_entry),
    "record-lost": ("each function compiled to be traced has a record", unrecorded),
    "notrace-place": ("no site is in code that must not be traced", in_notrace),
    "site-placed": (
        "symbols give the function's entry in each pad longer than a call",
        unplaced,
    ),
    "site-overlap": ("no two sites share a byte", overlapping),
    "site-relocated": ("no relocation writes over a site when the file is loaded", relocated),
    "call-relocation": ("each call of a module has its relocation", unlinked),
    "call-kept": ("no call is one that ftrace_init silently turns into a NOP", undone),
    "site-known": ("each site holds a known NOP or a call", unknown),
    "site-target": (
        "each call goes to one of the image's own ftrace entries, or where the journal says",
        foreign,
    ),
    "entry-mapped": (
        "a program's entry point, or a library's DT_INIT, is in one of its segments",
        unstarted,
    ),
    "gate-at-rest": (
        "ftrace_call and ftrace_graph_call are as compiled, or as the journal says",
        astray,
    ),
}
"""Name, what holds, and the rule that finds where it does not."""

PROBE_CALLED = "probe-called"
INVARIANTS: dict[str, str] = {
    "table-found": "the image has a table of call sites, which only a module may lack",
    **{name: words for name, (words, _) in RULES.items()},
    "ftrace_init": "the kernel's ftrace_init accepts every record",
    PROBE_CALLED: "each probe in the record of a kernel's probes is called by its function's site",
    "record-expected": "each function listed in the --expected file has a record",
}
"""All names, in the order of findings, and what holds."""
CODE_AS_FILE = "code-as-file"
IN_MEMORY: dict[str, str] = {CODE_AS_FILE: "code in the process's memory is as in its file"}
"""Invariants of an image in a process, besides those."""
TEXT_EXPLAINED, CALLEE_KNOWN = "text-explained", "callee-known"
IN_CORE: dict[str, str] = {
    TEXT_EXPLAINED: "the kernel's text in memory is as in its file, or as its tables allow",
    CALLEE_KNOWN: "each site in memory is a NOP, or calls what ftrace or BPF has registered",
}
"""Invariants of a kernel in a core."""


STRAY = " (if other memory is mapped there, the kernel shows its bytes instead)"
SIGNED = " (a kernel before 6.1 may print the bytes from 80 on as ffffff80)"


def check_open(image: Image, *, functions: bool = False, one_of_many: bool = False) -> Check:
    """Check an image; with ``functions`` tell those that have a record as well. What is
    ``one_of_many``, as a module ever is, need not have a table. Raises InputError for what cannot
    be read."""
    try:
        # All functions of a module may be notrace, and most programs of a folder have none.
        bare = image.is_module or (one_of_many and not image.is_kernel)
        sites = read_sites(image, bare=bare)
        if not sites.table_name:
            return Check(findings=(), ftrace_init=None, bare=True)
        found = check_sites(sites)
        return replace(found, recorded=recorded(sites)) if functions else found
    except NoTable as error:
        return Check(
            findings=(
                Finding(
                    invariant="table-found",
                    ip=None,
                    symbol="",
                    message=f"{error.reason}; {error.hint}",
                ),
            ),
            ftrace_init=None,
        )


def invariants_of(check: Check) -> dict[str, str]:
    """The invariants that a check is about, and what holds."""
    if check.core is not None:
        return IN_CORE
    if not check.pid:
        return INVARIANTS
    return IN_MEMORY if check.bare else INVARIANTS | IN_MEMORY


def check_sites(sites: Sites) -> Check:
    """Check every invariant. Nothing is raised: what parses gets findings."""
    found: list[Finding] = []
    for name, (_, rule) in RULES.items():
        ip, messages = rule(sites)
        places = sites.image.kallsyms.places(ip) if len(ip) else []
        rows = zip(ip.tolist(), places, messages, strict=True)
        found += [
            Finding(invariant=name, ip=at, symbol=place, message=message)
            for at, place, message in rows
        ]
    if not sites.abi.kernel:
        return Check(findings=tuple(found), ftrace_init=None)
    outlook = predict(sites)
    if outlook.bug is not None:
        bug = outlook.bug
        message = "ftrace_init will refuse this record, and ftrace is off from there on"
        message += SIGNED if bug.doubtful else ""
        message += STRAY if bug.stray else ""
        place = bug.place if bug.symbol else ""
        found.append(
            Finding(
                invariant="ftrace_init", ip=bug.ip, symbol=place, message=message, bug=bug_text(bug)
            )
        )
    if outlook.death is not None:
        death = outlook.death
        end = "the module is loaded" if outlook.module else "it boots"
        message = f"the kernel will crash on this record when {end}: {death.reason}"
        found.append(
            Finding(invariant="ftrace_init", ip=death.record, symbol=death.place, message=message)
        )
    return Check(findings=tuple(found), ftrace_init=outlook, notes=tuple(_notes(sites)))


def _notes(sites: Sites) -> Iterator[Note]:
    """Sites whose record was dropped: deliberately, so they are no findings."""
    for kind, rows in unrecorded_sites(sites).items():
        ip = sites.ip[rows]
        yield Note(
            f"record dropped: {kind}", tuple(ip.tolist()), tuple(sites.image.kallsyms.places(ip))
        )
