# SPDX-License-Identifier: MIT
"""Running processes of arm64, traced: ftpatch runs in a guest (process_guest.py), beside programs
that count their own calls."""

from __future__ import annotations

from typing import Any

import pytest

from .process_guest import WAITS, case, require_clean


def test_an_untouched_process_is_clean(said: dict[str, Any]) -> None:
    found = case(said, "reads")
    assert found["sites"] == {"called": 7, "libc.so.6": 0, "ld-linux-aarch64.so.1": 0}
    names = ("one", "two", "mixed", "handle", "deep", "works", "main")
    assert found["states"] == dict.fromkeys(names, "nop")
    assert found["check"].endswith(
        "3 images, 2 without call sites, 0 unreadable, every invariant holds\n"
    )


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_calls_are_counted(said: dict[str, Any], tracer: str) -> None:
    """As often as the program counts them, in three threads."""
    found = case(said, tracer)
    assert found["traced"] == found["after"] == found["plain"]
    _, ones, twos, _ = map(int, found["plain"].split())
    assert found["counted"] == {"one": ones, "two": twos}
    require_clean(found)


def test_pending_calls_return(said: dict[str, Any]) -> None:
    """From where they were called, after the tracer is gone."""
    found = case(said, "pending")
    assert found["first"]["code"] == 0 and found["first"]["returns"] == 21, found
    assert found["answer"] == "20"
    require_clean(found["first"])


def test_signed_return_addresses_are_waited_for(said: dict[str, Any]) -> None:
    """Only the thread itself can sign what would be put back."""
    found = case(said, "signed")
    assert found["first"]["code"] == 1
    assert "whose return addresses are signed" in found["first"]["said"]
    assert found["answer"] == "20"
    require_clean(found)


def test_taken_in_and_out_while_signals_arrive(said: dict[str, Any]) -> None:
    found = case(said, "cycles")
    assert {line.split()[0] for line in found["answers"]} == {found["plain"].split()[0]}, found
    require_clean(found)


def test_one_command_traces_and_leaves(said: dict[str, Any]) -> None:
    found = case(said, "traces")
    assert found["code"] == 0 and "sites traced" in found["err"], found
    assert found["during"] == found["plain"]
    rows = [line.split() for line in found["out"].splitlines()]
    hits = {words[-1]: int(words[0]) for words in rows if words[:1] and words[0].isdecimal()}
    assert set(hits) == {"one", "two"} and hits["one"] > hits["two"] > 0, found
    require_clean(found)


def test_system_calls_go_on_waiting(said: dict[str, Any]) -> None:
    """As they end when nobody stops their process."""
    found = case(said, "calls")
    assert (
        found["number"] + len(found["skipped"]) == len(WAITS) and found["number"] > len(WAITS) / 2
    )
    assert found["differ"] == {}
