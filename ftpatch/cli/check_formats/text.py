# SPDX-License-Identifier: MIT
"""Findings for people: a line each, and below it what the kernel will print."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ftpatch.cli.check_formats.finding import Notes, Results, message, named, noted, remarks
from ftpatch.cli.check_formats.tally import Tally
from ftpatch.cli.console import count, error_line, lines
from ftpatch.cli.paint import Tone, Word, bad, fine, joined, warn
from ftpatch.errors import FtpatchError
from ftpatch.names.demangle import demangled

if TYPE_CHECKING:
    from ftpatch.ftrace.check.check import Check, Note

__all__ = ["text"]


def text(results: Results, notes: Notes) -> None:
    """Print all findings, then what holds."""
    tally = Tally()
    for path, outcome in results:
        tally.add(path, outcome)
        if isinstance(outcome, FtpatchError):
            error_line(str(outcome))
            continue
        name = named(path, outcome)
        for finding in outcome.findings:
            rest = message(finding).removeprefix(finding.invariant)
            lines([(f"{name}: ", bad(finding.invariant), rest), *finding.bug.splitlines()])
        if not notes.quiet:
            lines((f"{name}: ", *_noted(note)) for note in outcome.notes)
        if not notes.quiet and not notes.many:
            _summary(name, outcome)
        elif not notes.quiet and _stands_out(outcome):
            _verdict(name, outcome)
        if notes.verbose:
            _each(name, outcome)
    if notes.many and not notes.quiet and tally.images + tally.unreadable:
        lines([tally.line()])
    remarks(notes, error=False)


VERDICTS = {
    "boots": "boots and ftrace works",
    "ftrace-off": "ftrace will be off",
    "dies": "the kernel will not boot",
}
OF_MODULES = {
    "boots": "loads and ftrace works",
    "ftrace-off": "ftrace will be off once the module is loaded",
    "dies": "the kernel that loads the module will crash",
}


TONES = {"boots": Tone.FINE, "ftrace-off": Tone.WARN, "dies": Tone.BAD}


def _noted(note: Note) -> tuple[str, str]:
    return warn("note"), noted(note).removeprefix("note")


def _summary(image: str, check: Check) -> None:
    outlook = check.ftrace_init
    if check.bare:
        lines([f"{image}: no call sites, nothing to check"])
        return
    _verdict(image, check)
    if outlook is not None and outlook.death is None:
        end = "one ftrace bug" if outlook.bug else "no ftrace bug"
        number = f"ftrace: allocating {outlook.entries} entries"
        if outlook.module:
            number = f"{count(outlook.entries, 'record')} for ftrace_module_init"
        lines([f"{image}: {number}, {end}"])
    if check.known:
        end = "" if check.findings else ", nothing new"
        lines([(f"{image}: ", warn(count(len(check.known), "known exception")), end)])
    elif not check.findings:
        lines([(f"{image}: ", fine("every invariant holds"))])


def _stands_out(check: Check) -> bool:
    """Whether a directory's image gets a line of its own: a kernel does, and a module that will do
    harm."""
    outlook = check.ftrace_init
    return outlook is not None and not (outlook.module and outlook.verdict == "boots")


def _verdict(image: str, check: Check) -> None:
    outlook = check.ftrace_init
    if outlook is not None:
        words = (OF_MODULES if outlook.module else VERDICTS)[outlook.verdict]
        others = {finding.invariant for finding in check.findings} - {"ftrace_init"}
        words += ", apart from the findings above" if others and outlook.verdict == "boots" else ""
        words += " (known)" if outlook.verdict != "boots" and _is_known(check) else ""
        lines([(f"{image}: verdict: ", Word(words, TONES[outlook.verdict]))])


def _is_known(check: Check) -> bool:
    """Whether what decides the verdict is in the baseline."""
    known, fresh = ({one.invariant for one in of} for of in (check.known, check.findings))
    return "ftrace_init" in known - fresh


def _each(image: str, check: Check) -> None:
    from ftpatch.ftrace.check.check import invariants_of

    if check.ftrace_init is not None:
        lines([f"{image}: ftrace_init_nop compares {check.ftrace_init.compares}"])
    broken = Counter(finding.invariant for finding in check.findings)
    known = Counter(finding.invariant for finding in check.known)
    for name, words in invariants_of(check).items():
        found = [bad(count(broken[name], "finding"))] * bool(broken[name])
        found += [warn(count(known[name], "known exception"))] * bool(known[name])
        lines([(f"{image}: {name}: {words}: ", *joined(found or [fine("holds")], ", "))])
    lines(f"{image}: known exception: {message(finding)}" for finding in check.known)
    for note in check.notes:
        places = zip(note.ip, note.names, strict=True)
        lines(f"{image}: note: {ip:#x} {demangled(name)}: {note.message}" for ip, name in places)
