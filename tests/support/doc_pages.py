# SPDX-License-Identifier: MIT
"""The documents' fenced blocks: what they run, what they show, and whether that is what comes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "blocks", "ftpatch_calls", "inline_code", "matches", "steps"]

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(r"^```(\w*) *(\S*)$")
MARKER = re.compile(r"^<!-- (not run|needs): (.+) -->$")

VARIES = (
    # A duration and the mark that function_graph puts before a long one.
    (re.compile(r"(?:[$@*#!+] )?\b\d+\.\d+ (?:us|ms|s|seconds)\b"), "TIME"),
    (re.compile(r"\b\d+\.\d{6}:"), "TIME:"),
    (re.compile(r"^ *\d+\)", re.MULTILINE), "TID)"),
    (re.compile(r"(?<=[a-z])-\d+ +(?=TIME:|\[)"), "-TID "),
    (re.compile(r"\[\d{3}\]"), "[CPU]"),
    (re.compile(r'("(?:pid|tid|time|duration)": )\d+'), r"\1N"),
    (re.compile(r"\+0x[0-9a-f]+/0x[0-9a-f]+"), "+0xN/0xN"),
    (re.compile(r"0x[0-9a-f]{3,}"), "0xN"),
    (re.compile(r"^ftpatch: \d+ \(", re.MULTILINE), "ftpatch: PID ("),
    (re.compile(r"longest pause [\d.]+ ms"), "longest pause N ms"),
    (re.compile(r"latency: +\d+ \(avg \d+, min \d+, max \d+\)"), "latency: N"),
    (re.compile(r"\b\d{3,} bytes"), "N bytes"),  # zlib is another, and the stubs change
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"^ | $", re.MULTILINE), ""),
)
"""What is another on each machine or in each run, and what stands for it."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its ``language``, the ``name`` of the file that it is, if any, its first
    ``line`` in the page, and the marker before it: why it is ``not_run``, or what it ``needs``."""

    language: str
    name: str
    line: int
    text: str
    not_run: str = ""
    needs: str = ""


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in its order."""
    marker, opened = {"not run": "", "needs": ""}, None
    body: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if opened is None:
            if found := MARKER.match(line):
                marker[found[1]] = found[2]
            elif found := FENCE.match(line):
                opened, body = (found[1], found[2], number + 1), []
            elif line.strip():
                marker = {"not run": "", "needs": ""}
        elif line == "```":
            text = "".join(f"{row}\n" for row in body)
            yield Block(*opened, text, marker["not run"], marker["needs"])
            opened, marker = None, {"not run": "", "needs": ""}
        else:
            body.append(line)
    assert opened is None, f"{page.name}: a block is not closed"


def steps(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block with the output that each shows."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
            continue
        assert found, f"line {block.line}: output before the first command"
        command, shown = found[-1]
        if command.endswith("\\\n"):
            found[-1] = (command + line, "")
        else:
            found[-1] = (command, shown + line)
    return found


def inline_code(page: Path) -> Iterator[str]:
    """The code spans of a page's running text."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`]+)`", text):
        yield re.sub(r"\s+", " ", span)


def ftpatch_calls(command: str) -> Iterator[list[str]]:
    """The arguments of each call of ftpatch in a shell command."""
    words: list[str] = []
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if word and set(word) <= set("();|&<>"):
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words.pop(0)
            if words and words[0] == "ftpatch":
                yield words[1:]
            words = []
        else:
            words.append(word)


def matches(shown: str, printed: str) -> bool:
    """Whether a command printed what a page shows: ``...`` stands for anything within a line, or,
    alone in one, for any lines."""
    for pattern, name in VARIES:
        shown, printed = pattern.sub(name, shown), pattern.sub(name, printed)
    rows = []
    for row in shown.splitlines():
        if row == "...":
            rows.append(r"(?:.*\n)*?")
        else:
            rows.append(".*".join(map(re.escape, row.split("..."))) + r"\n")
    if printed and not printed.endswith("\n"):
        printed += "\n"
    return re.fullmatch("".join(rows), printed) is not None
