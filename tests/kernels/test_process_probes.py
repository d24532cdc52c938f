# SPDX-License-Identifier: MIT
"""Running processes of arm64, probed: the program knows what it was called with, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.probed_process import total

from .in_guest_probes import LAPS, ROUNDS
from .process_guest import case, require_clean


@pytest.mark.parametrize("way", ["jump", "pad", "bti"])
def test_hits_and_values(said: dict[str, Any], way: str) -> None:
    """As x86-64's (tests/process/test_probes_live.py), and in the midst of a function."""
    found = case(said, f"probes_{way}")
    assert found["during"] == found["after"] == total(ROUNDS)
    names = ("six", "rsix", "named", "rthree") + ("midst",) * (way != "pad")
    assert found["hits"] == dict.fromkeys(names, ROUNDS)
    assert found["ways"] == (["jump"] if way == "bti" else [way])
    values = found["values"]
    for i in range(ROUNDS):
        assert values["six"][i] == dict(zip("abcdef", range(i, i + 6), strict=True))
        assert values["rsix"][i] == {"value": sum((k + 1) * (i + k) for k in range(6))}
        assert values["named"][i] == {"name": "abc", "second": 7 * i}
        assert values["rthree"][i] == {"arg1": i * i - 3}
    require_clean(found)


@pytest.mark.parametrize("way, words", [
    ("jump", "named+0x0: a jump to ftpatch's code (p:probes/named), 4 bytes differ"),
    ("pad", "named+0x4: a jump to ftpatch's code (p:probes/named) in memory, a NOP in the file"),
])  # fmt: skip
def test_others_are_told_of_them(said: dict[str, Any], way: str, words: str) -> None:
    found = case(said, f"probes_{way}")
    code, out = found["checked"]
    assert code == 1 and words in out and "neither" not in out
    if way == "pad":
        _, listed, _, _, status, _ = found["sites"]
        assert "ftpatch (p:probes/named)" in listed and "own probes" in status
    assert {line.split()[0].rpartition("/")[2] for line in found["probes"]} == {*found["hits"]}
    code, said_again = found["again"]
    assert code == 2 and "ftpatch is already attached; run `ftpatch undo --pid" in said_again


def test_a_static_program(said: dict[str, Any]) -> None:
    """If its last page of code has room: of one with two KB more, if not of the other."""
    found = case(said, "probes_static")["programs"].values()
    assert len(found) == 2 and 0 in {one["code"] for one in found}, found
    for one in found:
        assert one["during"] == total(ROUNDS)
        require_clean(one)
        if one["code"]:
            assert "leaves 1" in one["err"] and "of its last page unused" in one["err"]
        else:
            assert [each["a"] for each in one["values"]["six"]] == [*range(ROUNDS)]


def test_a_library_function(said: dict[str, Any]) -> None:
    """Far from the program, which has the runtime."""
    found = case(said, "probes_library")
    assert found["during"] == found["after"] == total(ROUNDS)
    assert found["hits"] == {"in": ROUNDS, "out": ROUNDS, "own": ROUNDS}
    assert [one["n"] for one in found["values"]["in"]] == [*range(ROUNDS)]
    assert [one["arg1"] for one in found["values"]["out"]] == [i * i - 3 for i in range(ROUNDS)]
    require_clean(found)


def test_libc_called_by_all_at_once(said: dict[str, Any]) -> None:
    """Four threads of 200 rounds: a malloc of its own size each, and strdup's, by libc itself."""
    found = case(said, "probes_libc")
    assert found["rounds"] == "800" and found["sizes"] == [200, 200, 200, 200, 800]
    assert found["hits"]["m"] == found["hits"]["mr"] >= 1600 and found["hits"]["f"] >= 1600
    assert found["texts"] >= 800
    assert found["answers"] == ["800"] * LAPS
    assert found["check"][0] == 0, found["check"]


def test_pending_calls_return(said: dict[str, Any]) -> None:
    """From where they were called, 21 of the program's and one of libc's; a call that had begun
    before is not seen."""
    found = case(said, "probes_pending")
    assert (found["waits"], found["returns"]) == ("waiting", 22)
    assert found["answers"] == ["20", "5", "waiting", "2"]
    assert found["hits"] == {"deep": 3}
    assert [one["arg1"] for one in found["values"]["deep"]] == [0, 1, 2]
    require_clean(found)


@pytest.mark.parametrize("probe, why", [
    ("p deep", "deep+0x0 has no room for a jump: it begins with an instruction that must not move"),
    ("r libc.so.6:_setjmp", "returns twice per call"),
    ("r libc.so.6:swapcontext", "keeps its return address in memory of the program"),
    ("p libc.so:malloc", "did you mean libc.so.6"),
])  # fmt: skip
def test_what_is_refused(said: dict[str, Any], probe: str, why: str) -> None:
    found = case(said, "probes_refused")
    code, err = found["refused"][probe]
    assert code == 2 and why in err and err.count("\n") == 1
    require_clean(found)


def test_one_command_probes_and_leaves(said: dict[str, Any]) -> None:
    found = case(said, "probes_for_a_while")
    assert found["code"] == 0 and "2 places probed" in found["err"], found
    assert found["during"] == [total(ROUNDS)]
    assert "six: (six+0x0/0x" in found["out"]
    require_clean(found)
