# SPDX-License-Identifier: MIT
"""Findings as a SARIF log, for code scanning: OASIS, Static Analysis Results Interchange Format
2.1.0 (the sections are named below).

    runs[0].tool.driver.rules      the invariants (3.19.23)
    runs[0].results                a finding each; what a baseline knows is suppressed (3.27, 3.35)
    runs[0].invocations[0]         images that could not be read, and notes (3.20)

A finding is at its source, where debug information tells it, and else at the image. Addresses are
texts: readers keep SARIF's own in 32 or 64 bits with a sign.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ftpatch import __version__
from ftpatch.cli.check_formats.finding import Notes, Results, message, noted, remarks
from ftpatch.cli.check_formats.source_places import Place, source_places
from ftpatch.cli.console import clean, document
from ftpatch.errors import FtpatchError

if TYPE_CHECKING:
    from ftpatch.ftrace.check.check import Check, Finding

__all__ = ["sarif"]

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
KNOWN = [{"kind": "external", "justification": "listed in the baseline"}]


def sarif(results: Results, notes: Notes) -> None:
    """Print the log when all results are in."""
    from ftpatch.ftrace.check.check import INVARIANTS, invariants_of

    invariants = INVARIANTS

    found, told = list[dict[str, Any]](), list[dict[str, Any]]()
    readable = True
    for path, outcome in results:
        if isinstance(outcome, FtpatchError):
            readable = False
            told.append(_notification(path, "error", str(outcome)))
            continue
        if outcome.pid or outcome.core is not None:
            invariants = INVARIANTS | invariants_of(outcome)
        found += _results(path, outcome, list(invariants))
        if not notes.quiet:
            told += [_notification(path, "note", noted(note)) for note in outcome.notes]
    rules = [
        {"id": name, "shortDescription": {"text": _sentence(words)}}
        for name, words in invariants.items()
    ]
    driver = {"name": "ftpatch", "semanticVersion": __version__, "rules": rules}
    invocation = {"executionSuccessful": readable, "toolExecutionNotifications": told}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": found}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    document(json.dumps(log, indent=2) + "\n")
    remarks(notes)


def _results(path: Path, check: Check, rules: list[str]) -> Iterator[dict[str, Any]]:
    findings = [(finding, False) for finding in check.findings]
    findings += [(finding, True) for finding in check.known]
    places = source_places(path, check, [finding for finding, _ in findings])
    for (finding, known), place in zip(findings, places, strict=True):
        text = "\n".join(map(clean, [message(finding), *finding.bug.splitlines()]))
        result: dict[str, Any] = {
            "ruleId": finding.invariant,
            "ruleIndex": rules.index(finding.invariant),
            "level": "error",
            "message": {"text": text},
            "locations": [_location(path, finding, place)],
            "partialFingerprints": {
                "imageFunction/v1": clean(f"{path.name}:{finding.invariant}:{finding.function}")
            },
            "properties": {} if finding.ip is None else {"ip": hex(finding.ip)},
        }
        if check.pid:
            result["properties"]["pid"] = check.pid
        if check.core is not None:
            result["properties"]["core"] = str(check.core)
        if place is not None:
            result["analysisTarget"] = {"uri": _uri(path)}
        if check.ftrace_init is not None:
            result["properties"] |= {"verdict": check.ftrace_init.verdict.value}
        yield result | ({"suppressions": KNOWN} if known else {})


def _location(path: Path, finding: Finding, place: Place | None) -> dict[str, Any]:
    file, line = place or (path, 0)
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if line:
        physical["region"] = {"startLine": line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding.symbol:
        named = {"fullyQualifiedName": clean(finding.function), "kind": "function"}
        location["logicalLocations"] = [named]
    return location


def _notification(path: Path, level: str, text: str) -> dict[str, Any]:
    physical = {"artifactLocation": {"uri": _uri(path)}}
    locations = [{"physicalLocation": physical}]
    return {"level": level, "message": {"text": clean(text)}, "locations": locations}


def _uri(path: Path) -> str:
    """A relative reference for a relative path: where it is, the reader knows."""
    return ("file://" if path.is_absolute() else "") + quote(os.fsencode(path))


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
