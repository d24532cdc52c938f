# SPDX-License-Identifier: MIT
"""--format, --json and --report: one rule for every verb."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ftpatch.cli.check_formats import FORMATS
from ftpatch.trace.formats import reports
from tests.support.command import ftpatch

REPORTS = tuple(reports())
PLAIN = ("text", "json")
PID = ("--pid", "1")
VERBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "status": (("x",), PLAIN),
    "list": (("x",), PLAIN),
    "check": (("x",), tuple(FORMATS)),
    "enable": (("x",), PLAIN),
    "disable": (("x",), PLAIN),
    "undo": (("x",), PLAIN),
    "diff": (("x",), PLAIN),
    "extract": (("x",), PLAIN),
    "probe": (("x", "p main"), PLAIN),
    "probe keep": ((*PID, "p main", "--keep"), PLAIN),
    "probe pid": ((*PID, "p main"), REPORTS),
    "watch": (("x", "x:rw-"), PLAIN),
    "watch pid": ((*PID, "x:rw-"), REPORTS),
    "trace": (("true",), REPORTS),
    "report": (("x",), REPORTS),
    "boot": (("x",), REPORTS),
}
FAILURE = {"trace": 125, "boot": 125}


@pytest.mark.parametrize("name", VERBS)
def test_formats_are_refused_alike(name: str) -> None:
    words, known = VERBS[name]
    verb = name.partition(" ")[0]
    use = f"{', '.join(known[:-1])} or {known[-1]}"
    for given, said in (
        (["--format", "zzz"], f"unknown format 'zzz'; use {use}"),
        (["--format", "jso"], "unknown format 'jso'; did you mean json?"),
        (["--json", "--format", known[0]], f"--json and --format {known[0]} conflict; choose one"),
    ):
        result = ftpatch(verb, *given, *words)
        assert (result.code, result.out) == (FAILURE.get(verb, 2), "")
        assert result.err == f"ftpatch: {said}\n"


@pytest.mark.parametrize(
    ("verb", "words"),
    [(verb, words) for verb in ("probe", "watch") for words in ("--report json", "--seconds 1")]
    + [("trace", "--seconds 1s")],
)
def test_some_need_a_process(verb: str, words: str) -> None:
    result = ftpatch(verb, *words.split(), "true", "y")
    assert (result.code, result.out) == (FAILURE.get(verb, 2), "")
    said = f"{words.split()[0]} needs --pid; name a running process, or remove it"
    assert result.err == f"ftpatch: {said}\n"


def test_reports_of_probes_are_those_of_trace(tmp_path: Path) -> None:
    (tmp_path / "prog.c").write_text(
        "#include <unistd.h>\n"
        "__attribute__((noinline, noipa)) int beat(unsigned n) { return n + 100001; }\n"
        "int main(void) { for (unsigned n = 0;; n = beat(n)) usleep(10000); }\n"
    )
    prog = tmp_path / "prog"
    subprocess.run(["gcc", "-O1", "-o", prog, tmp_path / "prog.c"], check=True)
    page, trace = tmp_path / "beat.json", tmp_path / "beat.trace"
    with subprocess.Popen([prog]) as running:
        given = ("probe", "--pid", str(running.pid), "r beat n=$retval:s32", "--seconds", "0.5")
        try:
            printed = ftpatch(*given, "--format", "folded")
            written = ftpatch(*given, "--report", f"json={page}", "-q")
            again = ftpatch(*given, "--report", f"json={page}")
            text = ftpatch(*given, "--format", "text")
            unfit = ftpatch(*given, "--format", "ksym")
            kept = ftpatch(*given[:-2], "--keep", "--report", "json", "-o", trace)
        finally:
            running.kill()
    assert printed.code == 0 and printed.out.startswith("beat ")
    assert (written.code, written.out) == (0, "")
    rows = [json.loads(line) for line in page.read_text().splitlines()]
    assert any(row.get("probe") == "r_beat_0" for row in rows), rows[:3]
    assert again.code == 2 and again.err == (
        f"ftpatch: {page}: the output exists; use --force to overwrite it\n"
    )
    assert text.code == 0 and text.out.startswith("# tracer: probes\n")
    assert unfit.code == 2 and "probe events cannot be reported as ksym; use probes" in unfit.err
    assert kept.code == 2 and "--keep and --report are mutually exclusive" in kept.err
