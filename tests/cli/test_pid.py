# SPDX-License-Identifier: MIT
"""``status``, ``list`` and ``check`` with --pid: what people read at 80 columns, and what nm, gdb
and /proc say of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ftpatch.cli.completion import pids
from ftpatch.process import own_code, process_journal
from ftpatch.process.process import Process
from tests.support.command import Result, ftpatch
from tests.support.padded import padded
from tests.support.running import (
    PROGRAM,
    address_by_nm,
    code_by_gdb,
    needs_gdb,
    poked,
    program_with_library,
    running,
    starts_by_maps,
)
from tests.support.terminals import on_screen

pytestmark = needs_gdb
GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is as long in each run."""
    with tempfile.TemporaryDirectory(prefix="ft", dir="/tmp") as name:
        yield Path(name)


def _same(name: str, folder: Path, pid: int, *results: Result) -> None:
    text = "".join(f"{result.out}{result.err}[exit {result.code}]\n" for result in results)
    text = text.replace(str(folder), "/tmp/ft" + "N" * 8)
    text = re.sub(rf"\b{pid}\b", "PID", text)
    text = re.sub(r"0x[0-9a-f]{12}\b", "0xAAAAAAAAAAAA", text)
    text = re.sub(r"(  |\")/\S+/(libc|ld-linux)[^\" ]*\.so[.\d]*", r"\1/lib/\2.so", text)
    # What another compiler makes is another.
    text = re.sub(r"(cc:90:90:90:90)(:[0-9a-f]{2})+", r"\1:...", text)
    text = re.sub(r"(expected: )[0-9a-f]{2}\b(?!:)", r"\1XX", text)
    text = re.sub(r"(\"offset\": )\d+", r"\1N", text)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("FTPATCH_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs; FTPATCH_UPDATE_GOLDEN=1 writes it anew"


def _place(pid: int, path: Path, name: str) -> int:
    return starts_by_maps(pid)[str(path)] + address_by_nm(path, name)


def test_what_people_read(folder: Path) -> None:
    path, library = program_with_library(folder)
    words = ("--tracer", "nop", "-f", "two", "--in-place")
    assert ftpatch("enable", path, *words).code == 0
    with running(path) as program:
        pid = program.pid
        of = ("--pid", str(pid))
        _same(
            "pid-status",
            folder,
            pid,
            ftpatch("status", *of),
            ftpatch("status", *of, "-v"),
            ftpatch("status", *of, "--json"),
            ftpatch("status", *of, "-q"),
            ftpatch("check", *of),
            ftpatch("check", *of, "--json"),
        )
        poked(pid, _place(pid, library, "three"), b"\xcc")
        poked(pid, _place(pid, path, "main") + 9, b"\xcc")
        library.unlink()
        _same(
            "pid-changed",
            folder,
            pid,
            ftpatch("status", *of),
            ftpatch("list", *of),
            ftpatch("list", *of, "--lib", "libl*", "-f", "three", "--json"),
            ftpatch("check", *of),
            ftpatch("check", *of, "-q", "--json"),
            ftpatch("check", *of, "--format", "github"),
        )
        shown = on_screen("status", *of)
        assert max(map(len, shown.lines)) <= 80 and shown.colour("1 unexpected") == "red"
        head, *rows = shown.lines
        assert re.fullmatch("IMAGE +SITES +CALL +NOP +UNEXPECTED +DIFFERING +CALLS", head), head
        assert rows[-1].startswith(f"{pid} (prog): 5 sites: 1 call, 3 nop, 1 unexpected, 1")
        assert max(map(len, on_screen("list", *of).lines)) <= 80


def test_sites_are_where_nm_and_the_kernel_say(folder: Path) -> None:
    path, library = program_with_library(folder)
    with running(path) as program:
        pid = program.pid
        rows = ftpatch("list", "--pid", str(pid), "--json").json
        for row in rows:
            assert int(row["ip"], 16) == _place(pid, Path(row["path"]), row["symbol"])
            assert code_by_gdb(pid, int(row["ip"], 16), 5) == b"\x90" * 5
            assert (row["pid"], row["state"], row["differing"]) == (pid, "nop", False)
        names = [(row["path"], row["symbol"]) for row in rows]
        mine = [(str(path), name) for name in ("one", "two", "main")]
        assert names == [*mine, (str(library), "three"), (str(library), "four")]
        starts = starts_by_maps(pid)
        for row in ftpatch("status", "--pid", str(pid), "--json").json:
            assert int(row["address"], 16) == starts.pop(row["path"]), row["path"]
        assert not starts, "status has all of them"


def test_status_of_a_process_has_the_keys_of_a_file(folder: Path) -> None:
    path, library = program_with_library(folder)
    with running(path) as program:
        rows = ftpatch("status", "--pid", str(program.pid), "--json").json
    more = {"pid", "address", "deleted", "differing", "recording"}
    for image in (path, library):
        (own,) = [row for row in rows if row["path"] == str(image)]
        assert {key: own[key] for key in own.keys() - more} == ftpatch(
            "status", "--json", image
        ).only
        assert more <= own.keys()


def test_filters(folder: Path) -> None:
    path, library = program_with_library(folder)
    with running(path) as program:
        pid = program.pid

        def symbols(*words: str) -> list[str]:
            result = ftpatch("list", "--json", "--pid", str(pid), *words)
            assert result.code == 0, result.err
            return [row["symbol"] for row in result.json]

        assert symbols("-f", "t*") == ["two", "three"]
        assert symbols("-f", "t*", "-n", "tw*") == ["two", "three"][1:]
        assert symbols("-f", "^t.*", "--regex") == ["two", "three"]
        assert symbols("--lib", "libl.so") == ["three", "four"] == symbols("--lib", "*/libl.so")
        assert symbols("--lib", "prog", "--lib", "libl*", "-n", "four")[-1] == "three"
        at = hex(_place(pid, library, "four"))
        assert symbols("-f", at) == ["four"] and symbols("-f", "!" + at)[-1] == "three"
        (folder / "these").write_text(f"one\n{at}\n")
        assert symbols("-f", f"@{folder / 'these'}") == ["one", "four"]
        refused = ftpatch("list", "--pid", str(pid), "-f", "one", "-f", "thre")
        assert refused.code == 2 and not refused.out
        assert refused.err.endswith("filter 'thre' matches no site; did you mean three?\n")
        linked = ftpatch("list", "--pid", str(pid), "-f", hex(address_by_nm(library, "four")))
        assert linked.code == 2 and "matches no site" in linked.err
        nothing = ftpatch("list", "--pid", str(pid), "-f", "one", "-n", "one")
        assert nothing.code == 2 and "the filters select no site" in nothing.err
        for glob, reason in (("nope*", "no image matches"), ("libc.so*", "has call sites")):
            refused = ftpatch("list", "--pid", str(pid), "--lib", glob)
            assert refused.code == 2 and reason in refused.err


def test_a_library_by_the_name_that_it_is_needed_by(folder: Path) -> None:
    path, library = program_with_library(folder)
    source = folder / "lib" / "prog.c"
    words = ["gcc", "-fpatchable-function-entry=5", "-shared", "-fpic", "-Wl,-soname,libthem.so.7"]
    subprocess.run([*words, source, "-o", library], check=True)
    with running(path, LD_PRELOAD=str(library)) as program:
        result = ftpatch("list", "--json", "--pid", str(program.pid), "--lib", "libthem.so.7")
    assert {row["path"] for row in result.json} == {str(library)}


def test_programs_without_sites(folder: Path) -> None:
    path = padded(folder, PROGRAM, "-fpatchable-function-entry=0")
    with running(path) as program:
        of = ("--pid", str(program.pid))
        status, check, listed = (ftpatch(verb, *of) for verb in ("status", "check", "list"))
        number = len(starts_by_maps(program.pid))
        assert ftpatch("status", *of, "-v").out.splitlines()[1:] == [
            f"  {name}" for name in starts_by_maps(program.pid)
        ]
    whole = f"{program.pid} (prog)"
    assert (status.code, status.out) == (
        0,
        f"{whole}: {number} images, {number} without call sites\n",
    )
    assert check.code == 0 and check.out == (
        f"{number} images, {number} without call sites, 0 unreadable, every invariant holds\n"
    )
    assert listed.code == 2 and "no image has call sites" in listed.err


@pytest.mark.parametrize("server", ["redis-server", "nginx", "python3"])
def test_programs_of_others_check_clean(server: str, folder: Path) -> None:
    found = shutil.which(server)
    if found is None:
        pytest.skip(f"needs {server}")
    config = folder / "nginx.conf"
    config.write_text("daemon off; master_process off; events {} http { access_log off; }")
    words = {
        "redis-server": ["--port", "0", "--unixsocket", f"{folder}/s", "--save", ""],
        "nginx": ["-p", f"{folder}", "-c", f"{config}", "-e", "stderr"],
        "python3": ["-c", "import ctypes, hashlib, ssl; print('ready', flush=True); input()"],
    }[server]
    pipe = subprocess.PIPE
    with subprocess.Popen([found, *words], stdin=pipe, stdout=pipe, stderr=pipe) as program:
        try:
            if server == "python3":
                assert program.stdout is not None and program.stdout.readline() == b"ready\n"
            of = ("--pid", str(program.pid))
            status, check = ftpatch("status", *of), ftpatch("check", *of)
        finally:
            program.kill()
    assert (check.code, status.code) == (0, 0), check.out + check.err + status.err
    assert "every invariant holds" in check.out


def test_several_processes(folder: Path) -> None:
    path, library = program_with_library(folder)
    with running(path) as first, running(path) as other:
        both = ("--pid", str(first.pid), "--pid", str(other.pid), "--pid", str(first.pid))
        rows = ftpatch("status", "--json", *both).json
        poked(other.pid, _place(other.pid, library, "four") + 5, b"\x06")
        found = ftpatch("check", "--json", *both)
        text = ftpatch("check", *both).out
        gone = ("--pid", "99999999", "--pid", str(first.pid))
        result, listed = ftpatch("check", *gone), ftpatch("status", *gone)
    assert [row["pid"] for row in rows if row["path"] == str(path)] == [first.pid, other.pid]
    assert (found.code, found.only["pid"], found.only["path"]) == (1, other.pid, str(library))
    assert text.startswith(f"{other.pid}: {library}: code-as-file: ")
    for one in (result, listed):
        assert one.code == 2 and one.err.startswith("ftpatch: 99999999: no such process")
    assert "1 unreadable, 0 with findings" in result.out and f"{path} " in listed.out


def test_formats(folder: Path) -> None:
    """junit counts tests, sarif and github name the source of a library at any address."""
    path, library = program_with_library(folder)
    with running(path) as program:
        of = ("--pid", str(program.pid))
        poked(program.pid, _place(program.pid, library, "four") + 5, b"\x06")
        junit = ET.fromstring(ftpatch("check", *of, "--format", "junit").out)
        sarif = ftpatch("check", *of, "--format", "sarif").out
    suites = {suite.get("name"): suite for suite in junit}
    assert len(suites) == 4
    own = suites[f"{program.pid}: {library}"]
    assert (own.get("failures"), own.get("tests")) == ("1", "23")
    libc = next(suite for name, suite in suites.items() if name and "libc.so" in name)
    assert [case.get("name") for case in libc] == ["code-as-file"] and libc.get("skipped") == "0"
    link = address_by_nm(library, "four") + 5
    words = ["addr2line", "-e", str(library), hex(link)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    file, _, line = said.rpartition(":")
    assert f'"uri": "file://{file}"' in sarif and f'"startLine": {line}' in sarif
    assert f'"pid": {program.pid}' in sarif and '"id": "code-as-file"' in sarif


def test_a_baseline_holds_for_the_next_process(folder: Path) -> None:
    """By the file's addresses: those of the next one are others. Records are expected as well."""
    path, library = program_with_library(folder)
    subprocess.run(["strip", "-x", library], check=True)
    known, wanted = folder / "known", folder / "wanted"

    def checked(*words: str | Path) -> Result:
        with running(path) as program:
            of = ("--pid", str(program.pid))
            start = starts_by_maps(program.pid)[str(library)]
            poked(program.pid, start + place, b"\x06")
            return ftpatch("check", *of, *words)

    place = address_by_nm(path, "_init") + 4  # in both, and without a symbol in the library
    assert checked().code == 1
    assert checked("--write-baseline", known, "--write-expected", wanted).code == 0
    again = checked("--baseline", known, "--expected", wanted)
    assert again.code == 0 and "known exception" in again.out and not again.err


def test_what_was_inserted_is_told(folder: Path) -> None:
    path = padded(folder, PROGRAM, "-fpatchable-function-entry=0")
    assert ftpatch("probe", path, "p:sum one n=$arg1:s32", "--in-place").code == 0
    with running(path, FTPATCH_TRACE=str(folder / "trace")) as program:
        result = ftpatch("status", "--pid", str(program.pid))
        check = ftpatch("check", "--pid", str(program.pid), "--json")
    assert f"{path}, has 1 probe: p:probes/sum one n=$arg1:s32\n" in result.out
    # The runtime hooks system calls in memory, and the program's file has the probes.
    assert {Path(row["path"]).name.split(".")[0] for row in check.json} <= {
        "libc",
        "ld-linux-x86-64",
    }


def test_completion_offers_what_may_be_read(folder: Path) -> None:
    path = padded(folder, PROGRAM)
    with running(path) as program:
        assert (str(program.pid), "prog") in pids(str(program.pid)[:-1])
        assert pids(str(program.pid)) == [(str(program.pid), "prog")]
    assert "2" not in [pid for pid, _ in pids("")] and pids("x") == []


def test_the_journal_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of images there is."""
    asked = list[str]()

    def counted(process: Process) -> process_journal.Entry | None:
        asked.append(str(process))
        return process_journal.recall(process)

    monkeypatch.setattr(own_code, "recall", counted)
    path, _ = program_with_library(tmp_path)
    with running(path) as program:
        for words in (("check",), ("check", "--json"), ("list",), ("list", "--json"), ("status",)):
            assert ftpatch(*words, "--pid", str(program.pid)).code == 0
            assert len(asked) == 1
            asked.clear()
