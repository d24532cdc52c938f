# SPDX-License-Identifier: MIT
"""-p, as strace, gdb and perf have it."""

from __future__ import annotations

import os

import pytest

from ftpatch.cli.guardian import outlives
from tests.support.command import ftpatch

VERBS = ("status", "list", "check", "enable", "disable", "undo", "probe", "watch", "trace")


@pytest.mark.parametrize("verb", VERBS)
def test_a_process_can_be_named_by_it(verb: str) -> None:
    """Nobody has this number (PID_MAX_LIMIT of include/linux/threads.h)."""
    more = {"probe": ["p main"], "watch": ["counter:rw-"]}.get(verb, [])
    for words in (["-p", "9999999"], ["-p9999999"]):
        result = ftpatch(verb, *words, *more)
        assert result.code in (2, 125) and "9999999: no such process" in result.err, result.err
    assert "  -p, --pid PID" in ftpatch(verb, "--help").out


def test_whoever_changes_a_process_outlives_its_parent() -> None:
    for words in ("-p 1", "-p1", "--pid 1", "--pid=1", "-f x -p 1", "-qp 1", "-qvp1"):
        assert outlives(["enable", *words.split()]), words
        assert not outlives(["status", *words.split()]), words
    for words in ("", "-- mkdir -p folder", "-f p 1", "-op 1", "--open 1", "--pid"):
        assert not outlives(["trace", *words.split()]), words
    assert not outlives([])


def test_it_reaches_the_process() -> None:
    words = [("status", option, str(os.getpid()), "--json") for option in ("-p", "--pid")]
    short, long = (ftpatch(*each) for each in words)
    assert short.code == 0 and short.json[0]["path"] == long.json[0]["path"]
