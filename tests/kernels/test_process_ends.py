# SPDX-License-Identifier: MIT
"""Processes of arm64: filters that change, an ftpatch that is killed, seccomp."""

from __future__ import annotations

import signal
from typing import Any

from .process_guest import case, require_clean


def test_what_is_traced_changes_meanwhile(said: dict[str, Any]) -> None:
    """First one function, then two, then the other one, then none is recorded."""
    found = case(said, "filters")
    _, ones, twos, _ = map(int, found["plain"].split())
    assert found["answers"] == [found["plain"]] * 4
    assert found["counted"] == {"one": 2 * ones, "two": 2 * twos}
    require_clean(found)


def test_killed_at_any_moment(said: dict[str, Any]) -> None:
    """Alone, or with the child that does its work; `undo` takes out what was left, and the program
    counts as it would without."""
    found = case(said, "kills")
    assert -signal.SIGKILL in found["codes"], found["codes"]
    assert {one.split()[0] for one in found["answers"]} == {found["plain"].split()[0]}, found
    require_clean(found)


def test_a_filter_that_lets_the_tracer_in(said: dict[str, Any]) -> None:
    found = case(said, "seccomp_lets")
    assert (found["seccomp"], found["code"]) == ("2", 7)
    assert found["enable"][0] == 0, found["enable"]
    assert found["during"] == found["plain"]
    assert found["counted"] == {"one": int(found["plain"].split()[1])}
    require_clean(found)


def test_a_filter_that_does_not(said: dict[str, Any]) -> None:
    """It kills who calls getcwd(): 17."""
    found = case(said, "seccomp_refuses")
    assert (found["seccomp"], found["code"]) == ("2", 7)
    code, out, err = found["enable"]
    assert code == 2 and out == "" and err.count("\n") == 1
    assert "its seccomp filter forbids what the tracer needs (system call 17)" in err
    assert found["during"] == found["plain"]
    require_clean(found)
