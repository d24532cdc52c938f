# SPDX-License-Identifier: MIT
"""Findings as a JUnit document: a suite for each image, a test case for each invariant.

    <testsuites>                            one document for all images
      <testsuite name="vmlinux">
        <testcase name="record-unique" classname="vmlinux"/>                it holds
        <testcase ...><failure message="2 findings" type="..."/>...         it does not
        <testcase ...><skipped message="1 known exception"/>                a baseline knows why
        <testcase ...><skipped message="no call sites"/>                    nothing to check

Of the images of a directory, what holds is one test case together: 4,000 modules would
make 16 MB.

      <testsuite name="fs/ext4/ext4.ko">
        <testcase name="other invariants" classname="fs/ext4/ext4.ko"/>     all but those below

There is no specification; this is what the schema of Jenkins' xUnit plugin (junit-10.xsd) and
GitLab's and Azure's readers have in common. It is ASCII, whatever the encoding of the output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ftpatch.cli.check_formats.finding import Notes, Results, message, named, noted, remarks
from ftpatch.cli.console import clean, count, document
from ftpatch.errors import FtpatchError

if TYPE_CHECKING:
    from ftpatch.ftrace.check.check import Check, Finding

__all__ = ["junit"]

OTHERS = "other invariants"


def junit(results: Results, notes: Notes) -> None:
    """Print the document when all results are in."""
    root = ET.Element("testsuites", name="ftpatch check")
    for path, outcome in results:
        name = str(path) if isinstance(outcome, FtpatchError) else named(path, outcome)
        suite = ET.SubElement(root, "testsuite", name=clean(name))
        if isinstance(outcome, FtpatchError):
            _case(suite, name, "readable", "error", "cannot read", [str(outcome)])
        else:
            if outcome.ftrace_init is not None:
                held = ET.SubElement(suite, "properties")
                ET.SubElement(held, "property", name="verdict", value=outcome.ftrace_init.verdict)
            _cases(suite, name, outcome, brief=notes.many and not outcome.pid)
            if outcome.notes:
                said = ET.SubElement(suite, "system-out")
                said.text = "\n".join(clean(noted(note)) for note in outcome.notes)
        _count(suite, "skipped")
    _count(root)
    ET.indent(root)
    document(ET.tostring(root, "us-ascii", xml_declaration=True).decode("ascii") + "\n")
    remarks(notes)


def _cases(suite: ET.Element, image: str, check: Check, *, brief: bool) -> None:
    from ftpatch.ftrace.check.check import invariants_of

    fresh, known = _by_name(check.findings), _by_name(check.known)
    unchecked = check.bare and not check.pid
    if brief:
        _case(suite, image, OTHERS, *(("skipped", "no call sites") if unchecked else ()))
    for name in invariants_of(check):
        if fresh[name]:
            said = [line for f in fresh[name] for line in (message(f), *f.bug.splitlines())]
            _case(suite, image, name, "failure", count(len(fresh[name]), "finding"), said)
        elif known[name]:
            said = [message(finding) for finding in known[name]]
            words = count(len(known[name]), "known exception")
            _case(suite, image, name, "skipped", words, said)
        elif brief:
            continue
        elif unchecked:
            _case(suite, image, name, "skipped", "no call sites")
        else:
            _case(suite, image, name)


def _by_name(findings: tuple[Finding, ...]) -> defaultdict[str, list[Finding]]:
    named = defaultdict(list)
    for finding in findings:
        named[finding.invariant].append(finding)
    return named


def _case(
    suite: ET.Element,
    image: str,
    name: str,
    outcome: str = "",
    words: str = "",
    text: Sequence[str] = (),
) -> None:
    case = ET.SubElement(suite, "testcase", name=name, classname=clean(image))
    if outcome:
        # What `clean` leaves is printable, and so a character that XML 1.0 allows.
        said = ET.SubElement(case, outcome, message=words, type=name)
        said.text = "\n".join(map(clean, text))


def _count(element: ET.Element, *also: str) -> None:
    """Set the attributes that count the test cases within."""
    element.set("tests", str(len(element.findall(".//testcase"))))
    for tag in ("failure", "error"):
        element.set(f"{tag}s", str(len(element.findall(f".//{tag}"))))
    for tag in also:
        element.set(tag, str(len(element.findall(f".//{tag}"))))
