# SPDX-License-Identifier: MIT
"""All bad probes of a command are named at once; --keep-going lays the others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.tracer_programs import run

SOURCE = """
__attribute__((noinline)) int step(int n) { return n + 1; }
__attribute__((noinline)) int other(int n) { return n + 2; }
int main(void) { return step(1) + other(2) - 6; }
"""
GOOD = ("p:one step $arg1", "r:two other $retval")
BAD = {
    "q:three step": "a probe starts with p or r",
    "p:four step $argx": "argx",
    "p:one main": "given group/event name probes/one already exists",
    "p:five stepp": "no such function 'stepp'",
    "p:six 0x12": "0x12 is not in an executable segment",
    "r:seven step+1": "",
    "p:eight step @nowhere": "nowhere",
    "p:nine step+0x1000": "has",
    "r:ten _start": "ten: ",
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "a.c").write_text(SOURCE)
    program = tmp_path / "a"
    subprocess.run(["gcc", "-O1", str(tmp_path / "a.c"), "-o", str(program)], check=True)
    return program


def test_all_are_named_at_once(program: Path) -> None:
    out = program.with_name("out")
    done = ftpatch("probe", program, GOOD[0], *BAD, GOOD[1], "-o", out)
    assert done.code == 2 and not out.exists() and not done.out
    said = done.err.splitlines()
    assert len(said) == len(BAD) and all(line.startswith("ftpatch: ") for line in said)
    for text in BAD.values():
        assert any(text in line for line in said), (text, said)
    alone = ftpatch("probe", program, "p:five stepp", "-o", out)
    assert alone.code == 2 and alone.err in done.err


def test_what_can_be_laid_is_laid(program: Path) -> None:
    out, trace = program.with_name("out"), program.with_name("trace")
    done = ftpatch("probe", program, GOOD[0], *BAD, GOOD[1], "--keep-going", "-o", out)
    assert done.code == 1, done.err
    assert len(done.err.splitlines()) == len(BAD)
    assert [line.split()[0] for line in done.out.splitlines()] == ["one", "two", "wrote"]
    assert run(out, [], cwd=program.parent, env={"FTPATCH_TRACE": str(trace)}).status == 0
    rows = ftpatch("report", trace, "--json").json
    assert {row["probe"]: row["hits"] for row in rows if "hits" in row} == {"one": 1, "two": 1}
    done = ftpatch("probe", program, *BAD, *GOOD, "--keep-going", "--json", "--dry-run")
    assert done.code == 1
    assert [json.loads(line)["name"] for line in done.out.splitlines()] == ["one", "two"]


def test_where_none_is_left(program: Path) -> None:
    out = program.with_name("out")
    bad = [text for text in BAD if "p:one" not in text]  # good by itself
    done = ftpatch("probe", program, *bad, "--keep-going", "-o", out)
    assert (done.code, done.out) == (2, "") and not out.exists()
    assert len(done.err.splitlines()) == len(bad)
    done = ftpatch("probe", program, *GOOD, "--keep-going", "-o", out)
    assert done.code == 0 and out.exists()
