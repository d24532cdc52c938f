# SPDX-License-Identifier: MIT
"""Exceptions and backtraces through traced returns in processes of arm64: the program compares what
comes of them with what it knows (tests/programs/walks.cc)."""

from __future__ import annotations

from typing import Any

import pytest

from .process_guest import case, require_clean

FOUR = ["clean-up", "between", "walk", "between"]
"""Where it waits, one after the other."""


@pytest.mark.parametrize("tracer", ["graph", "profile"])
def test_walks_pass_traced_returns(said: dict[str, Any], tracer: str) -> None:
    """In the program and in its library, which is traced by --lib."""
    found = case(said, f"walks_{tracer}")
    assert (found["said"], found["code"]) == ("0 errors\n", 0)
    assert {"down", "caught", "rethrown", "look", "through_library"} <= set(found["seen"])
    assert found["check"][0] == 0, found["check"]


def test_taken_out_while_an_exception_cleans_up(said: dict[str, Any]) -> None:
    found = case(said, "walks_left")
    assert found["places"] == FOUR and (found["out"], found["code"]) == ("0 errors\n", 0)
    require_clean(found)


def test_a_walk_is_waited_for(said: dict[str, Any]) -> None:
    found = case(said, "walks_awaited")
    code, out, err = found["undone"]
    assert code == 1 and "stays mapped: a thread was in the tracer" in out + err, found
    assert found["places"] == FOUR and (found["out"], found["code"]) == ("0 errors\n", 0)
    require_clean(found)
