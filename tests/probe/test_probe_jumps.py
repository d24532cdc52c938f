# SPDX-License-Identifier: MIT
"""Functions whose first instructions are jumped to from elsewhere, in ways that are not seen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch

SOURCE = Path(__file__).parent.parent / "programs" / "far_jumps.S"
FUNCTIONS = (
    *("loopentry", "midfar", "tiny", "tiny2", "tiny3", "twosym", "twoinner", "thunked"),
    *("thunk_rdx", "falls", "into", "pushret", "lockskip", "coldsw", "regtab", "gofar"),
)


@pytest.mark.parametrize("way", ["--optimize", "--no-optimize"])
def test_it_does_what_it_did(way: str, tmp_path: Path) -> None:
    program, out = tmp_path / "program", tmp_path / "out"
    subprocess.run(["gcc", str(SOURCE), "-o", str(program)], check=True)
    probes = [f"p:p_{name} {name}" for name in FUNCTIONS]
    done = ftpatch("probe", program, *probes, "p:cold coldsw.cold", way, "-o", out)
    assert done.code == 0, done.err
    expected, got = (
        subprocess.run(
            [path],
            capture_output=True,
            timeout=PATIENCE,
            check=True,
            env={"FTPATCH_TRACE": f"{out}.t"},
        ).stdout
        for path in (program, out)
    )
    assert got == expected == b"sum 11700\n"


def test_a_pad_with_another_probe_in_it(tmp_path: Path) -> None:
    source, program = tmp_path / "p.c", tmp_path / "program"
    source.write_text(
        "__attribute__((noinline)) int work(int n) { return n * 3; }\n"
        "int main(int n, char **v) { (void)v; return work(n) - 3; }\n"
    )
    flags = ["-O1", "-fpatchable-function-entry=5"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(program)], check=True)
    out = tmp_path / "out"
    done = ftpatch("probe", program, "p work", "p:second work+1", "-o", out)
    assert done.code == 0 and "too close" in done.out, done.out + done.err
    environment = {"FTPATCH_TRACE": str(tmp_path / "trace")}
    subprocess.run([out], timeout=PATIENCE, check=True, env=environment)
    rows = ftpatch("report", tmp_path / "trace", "--json").json
    assert {row["probe"]: row["hits"] for row in rows if "hits" in row} == {
        "p_work_0": 1,
        "second": 1,
    }


@pytest.mark.parametrize("way", ["--optimize", "--no-optimize"])
def test_a_probe_on_what_asks_about_signals(way: str, tmp_path: Path) -> None:
    """The system call in it is led to the runtime; the function can be probed all the same."""
    source, program = tmp_path / "p.c", tmp_path / "program"
    source.write_text(
        "#include <signal.h>\n"
        "int main(void) { struct sigaction a = {.sa_handler = SIG_IGN};\n"
        "return sigaction(SIGUSR1, &a, 0) || sigaction(SIGILL, &a, 0); }\n"
    )
    subprocess.run(["gcc", "-static", str(source), "-o", str(program)], check=True)
    done = ftpatch("probe", program, "p:q __libc_sigaction", way, "-o", tmp_path / "o")
    assert done.code == 0, done.err
    environment = {"FTPATCH_TRACE": str(tmp_path / "trace")}
    subprocess.run([tmp_path / "o"], timeout=PATIENCE, check=True, env=environment)
    rows = ftpatch("report", tmp_path / "trace", "--json").json
    assert [(row["hits"], row["missed"]) for row in rows if "hits" in row] == [(2, 0)]


def test_a_breakpoint_of_its_own_is_told_once_with_its_place(tmp_path: Path) -> None:
    source, program = tmp_path / "p.S", tmp_path / "program"
    source.write_text(
        ".globl main, stops\n.type main, @function\n.type stops, @function\n"
        "main: xor %eax, %eax\nret\n.size main, . - main\n"
        "stops: int3\nret\n.size stops, . - stops\n"
    )
    subprocess.run(["gcc", str(source), "-o", str(program)], check=True)
    said = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    (at,) = [int(line.split()[0], 16) for line in said.splitlines() if line.endswith(" stops")]
    done = ftpatch("probe", program, "p stops", "-o", tmp_path / "out")
    reason = f"no probe at {at:#x}: int3: a breakpoint instruction; probe another address"
    assert (done.code, done.err) == (2, f"ftpatch: {program}: {reason}\n")
