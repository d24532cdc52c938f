# SPDX-License-Identifier: MIT
"""Running processes probed and left again: the program counts its calls itself, and its memory is
compared with what it was."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.probed_process import Asked, asked, compiled, hits, library, total
from tests.support.running import address_by_nm

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
LINKS = {
    "pie": ("-fpie", "-pie"),
    "no-pie": ("-fno-pie", "-no-pie"),
    "static": ("-fno-pie", "-static"),
    "static-pie": ("-fpie", "-static-pie"),
    "pads": ("-fpatchable-function-entry=5",),
    "endbr64": ("-fcf-protection=full", "-O2"),
}
LIBC = "libc.so.6"


def _laid_in(running: Asked, trace: Path, *probes: str) -> None:
    said = ftpatch("probe", *running.pid, *probes, "-o", trace, "--keep")
    assert said.code == 0, said.err


def _taken_out(running: Asked) -> dict[str, object]:
    said = ftpatch("undo", *running.pid, "--json")
    assert said.code == 0, said.err
    return said.only


@pytest.mark.parametrize("link", LINKS)
def test_hits_and_values(tmp_path: Path, link: str) -> None:
    path, trace = compiled(tmp_path, *LINKS[link]), tmp_path / "t.trace"
    arguments = " ".join(f"{name}=$arg{n}:s64" for n, name in enumerate("abcdef", 1))
    probes = (
        f"p:six six {arguments}",
        "r:rsix six value=$retval:s64",
        "p:named named name=+0($arg1):string second=+4($arg2):s32",
        "r:rthree three $retval:s64",
    )
    with asked(path) as running:
        before = running.maps()
        _laid_in(running, trace, *probes)
        assert running.ask("c40") == total(40)
        _taken_out(running)
        assert running.ask("c9") == total(9)
        running.require_clean(before)
    counted, rows = hits(trace)
    assert counted == {"six": 40, "rsix": 40, "named": 40, "rthree": 40}
    values = {name: [row["values"] for row in rows[name]] for name in rows}
    for i in range(40):
        assert values["six"][i] == dict(zip("abcdef", range(i, i + 6), strict=True))
        assert values["rsix"][i] == {"value": sum((k + 1) * (i + k) for k in range(6))}
        assert values["named"][i] == {"name": "abc", "second": 7 * i}
        assert values["rthree"][i] == {"arg1": i * i - 3}
    ways = {row["way"] for row in ftpatch("report", trace, "--format", "json").json if "way" in row}
    assert ways == {"pad" if link == "pads" else "jump"}


@pytest.mark.parametrize("link", ["pie", "no-pie", "static"])
def test_a_stripped_program(tmp_path: Path, link: str) -> None:
    path, trace = compiled(tmp_path, *LINKS[link]), tmp_path / "t.trace"
    at = {name: hex(address_by_nm(path, name)) for name in ("six", "three")}
    subprocess.run(["strip", path], check=True)
    with asked(path) as running:
        before = running.maps()
        _laid_in(
            running, trace, f"p:six {at['six']} a=$arg1:s64", f"r:three {at['three']} $retval:s64"
        )
        assert running.ask("c20") == total(20)
        _taken_out(running)
        running.require_clean(before)
    counted, rows = hits(trace)
    assert counted == {"six": 20, "three": 20}
    assert [row["values"]["arg1"] for row in rows["three"]] == [i * i - 3 for i in range(20)]
    assert [row["values"]["a"] for row in rows["six"]] == [*range(20)]


@pytest.mark.parametrize("stripped", [False, True])
def test_a_library_function(tmp_path: Path, stripped: bool) -> None:
    (path, shared), trace = library(tmp_path), tmp_path / "t.trace"
    three = hex(address_by_nm(shared, "three")) if stripped else "three"
    if stripped:
        subprocess.run(["strip", shared], check=True)
    with asked(path) as running:
        before = running.maps()
        probes = (f"p:in libthree.so:{three} n=$arg1:s64", f"r:out {shared}:{three} $retval:s64")
        _laid_in(running, trace, *probes, "p:own six")
        assert running.ask("c20") == total(20)
        listed = ftpatch("probe", *running.pid).out.splitlines()
        named = {line.split()[0] for line in listed}
        assert named == {"p:probes/own", "p:probes/in", "r:probes/out"}
        _taken_out(running)
        running.require_clean(before)
    counted, rows = hits(trace)
    assert counted == {"in": 20, "out": 20, "own": 20}
    assert [row["values"]["n"] for row in rows["in"]] == [*range(20)]
    assert [row["values"]["arg1"] for row in rows["out"]] == [i * i - 3 for i in range(20)]
    shown = "libthree.so+" if stripped else "three+0x0 [libthree.so]"
    assert shown in ftpatch("report", trace).out


def test_libc_called_by_all_at_once(tmp_path: Path) -> None:
    """Threads count their rounds; each has a malloc of its own size, a strlen, and a strdup, in
    which libc calls malloc and strlen itself."""
    path, trace = compiled(tmp_path), tmp_path / "t.trace"
    with asked(path) as running:
        running.ask("t4")
        _laid_in(
            running,
            trace,
            f"p:m {LIBC}:malloc size=$arg1:u64",
            f"r:mr {LIBC}:malloc",
            f"p:s {LIBC}:strlen text=+0($arg1):string",
            f"p:f {LIBC}:free",
        )
        rounds = int(running.ask("t8"))
        _taken_out(running)
        assert running.ask("t2") == "400"
        said = ftpatch("check", *running.pid)
        assert said.code == 0, said.out
    counted, rows = hits(trace)
    sizes = [row["values"]["size"] for row in rows["m"]]
    assert rounds == 1600
    assert [sizes.count(1000003 + own) for own in range(8)] == [200] * 8
    assert sizes.count(17) == rounds  # by strdup, in libc
    texts = [row["values"]["text"] for row in rows["s"]]
    assert texts.count("x" * 16) == 2 * rounds
    assert counted["mr"] == counted["m"] >= 2 * rounds and counted["f"] >= 2 * rounds


def test_pending_calls_return(tmp_path: Path) -> None:
    path, trace = compiled(tmp_path), tmp_path / "t.trace"
    with asked(path) as running:
        before = running.maps()
        _laid_in(running, trace, "r:deep deep $retval")
        assert running.ask("d20") == "waiting"
        assert _taken_out(running)["returns"] == 21
        running.require_clean(before)
        assert running.ask("") == "20"
    assert hits(trace)[0] == {}


def test_a_call_that_began_before_is_not_seen(tmp_path: Path) -> None:
    path, trace = compiled(tmp_path), tmp_path / "t.trace"
    with asked(path) as running:
        assert running.ask("d5") == "waiting"
        _laid_in(running, trace, "r:deep deep $retval:s64")
        assert running.ask("") == "5"
        assert running.ask("d2") == "waiting"
        assert running.ask("") == "2"
        _taken_out(running)
    counted, rows = hits(trace)
    assert counted == {"deep": 3} and [row["values"]["arg1"] for row in rows["deep"]] == [0, 1, 2]


def test_others_are_told_of_them(tmp_path: Path) -> None:
    path, trace = compiled(tmp_path, *LINKS["pads"]), tmp_path / "t.trace"
    with asked(path) as running:
        _laid_in(running, trace, "p:six six", f"p:m {LIBC}:malloc", f"r:mr {LIBC}:malloc")
        checked = ftpatch("check", *running.pid)
        assert checked.code == 1
        assert "six+0x0: a jump to ftpatch's code (p:probes/six) in memory, a NOP" in checked.out
        assert "malloc+0x0: a jump to ftpatch's code (p:probes/m, r:probes/mr), 5 by" in checked.out
        assert "neither" not in checked.out
        assert "own probes" in ftpatch("status", *running.pid).out
        assert "ftpatch (p:probes/six)" in ftpatch("list", *running.pid).out
        there = f"run `ftpatch undo --pid {running.pid[1]}` first"
        for words in (
            ("probe", *running.pid, "p three"),
            ("enable", *running.pid),
            ("enable", *running.pid, "-f", "three", "--tracer", "function"),
            ("disable", *running.pid, "-f", "three"),
        ):
            said = ftpatch(*words)
            assert said.code == 2 and there in said.err and said.err.count("\n") == 1, said.err
        _taken_out(running)
        assert ftpatch("check", *running.pid).code == 0
        assert "own probes" not in ftpatch("status", *running.pid).out


@pytest.mark.parametrize("probe, why", [
    ("p sixx", "no such function 'sixx'; did you mean six"),
    ("p libx.so:six", "no library 'libx.so' is loaded"),
    ("p opened.so:six", "no library 'opened.so' is loaded; one that is opened later"),
    ("p libc.so:malloc", "did you mean libc.so.6"),
    (f"p {LIBC}:mallock", "did you mean malloc"),
    (f"r {LIBC}:swapcontext", "keeps its return address in memory of the program"),
    (f"r {LIBC}:_setjmp", "returns twice per call"),
    ("p chosen", "only chooses the function's implementation (IFUNC)"),
    ("r six+4", "must be a function entry"),
    ("p six @nothing", "@nothing: no such symbol"),
])  # fmt: skip
def test_what_is_refused(tmp_path: Path, probe: str, why: str) -> None:
    more = tmp_path / "more.c"
    more.write_text(
        'void short_(void) __asm__("short"); __asm__(".globl short\\n.type short, @function\\n'
        'short: ret\\n.size short, 1\\n");\n'
        "static int one(void) { return 1; }\n"
        "static void *choose(void) { return one; }\n"
        'int chosen(void) __attribute__((ifunc("choose")));\n'
    )
    path = compiled(tmp_path, str(more))
    with asked(path) as running:
        before = running.maps()
        said = ftpatch("probe", *running.pid, "p:fine three", probe, "--seconds", "1")
        assert said.code == 2 and why in said.err, said.err
        assert said.err.count("\n") == 1 and said.out == ""
        running.require_clean(before)


def test_what_can_be_is_laid_in(tmp_path: Path) -> None:
    path, trace = compiled(tmp_path), tmp_path / "t.trace"
    with asked(path) as running:
        probes = ("p:six six", "p sixx", f"p:m {LIBC}:malloc")
        said = ftpatch("probe", *running.pid, *probes, "--keep-going", "--keep", "-o", trace)
        assert said.code == 1 and said.err.count("\n") == 1 and "sixx" in said.err
        running.ask("c3")
        _taken_out(running)
    assert hits(trace)[0] == {"six": 3}


def test_options_that_mean_nothing(tmp_path: Path) -> None:
    path, there = compiled(tmp_path), tmp_path / "there"
    there.write_text("")
    with asked(path) as running:
        before = running.maps()
        for words, wanted in (
            (("p six", "--in-place"), "--in-place does not work with --pid"),
            (("p six", "--handler", "a:b"), "--handler does not work with --pid"),
            (("p six", "--keep", "--seconds", "1"), "--keep and --seconds are mutually exclusive"),
            (("p six", "--seconds", "0"), "--seconds 0: not a time"),
            (("p six", "-o", there), "the output exists"),
            (("p six", "-o", tmp_path / "none" / "t"), "cannot write: no such directory"),
            (("p six", "--size", "1"), "too small"),
            (("p six", "--format", "folded", "--seconds", "60"), "and folded needs them"),
            ((), "no probes in this process"),
        ):
            said = ftpatch("probe", *running.pid, *words)
            assert said.code == 2 and wanted in said.err, (words, said.err)
            assert said.err.count("\n") == 1
        said = ftpatch("probe", path, "p six", "--keep", "-o", tmp_path / "out")
        assert said.code == 2 and "--keep needs --pid" in said.err
        running.require_clean(before)


def test_code_that_somebody_else_changed(tmp_path: Path) -> None:
    """A debugger's breakpoint."""
    path = compiled(tmp_path, *LINKS["no-pie"])
    at = address_by_nm(path, "six")
    with asked(path) as running:
        place = Path(f"/proc/{running.pid[1]}/mem")
        with place.open("r+b", buffering=0) as memory:
            memory.seek(at)
            held = memory.read(1)
            memory.seek(at)
            memory.write(b"\xcc")
            said = ftpatch("probe", *running.pid, "p six", "--seconds", "1")
            memory.seek(at)
            memory.write(held)
        assert said.code == 2, said.out
        assert said.err.count("\n") == 1
        running.ask("c1")


def test_wildcards(tmp_path: Path) -> None:
    """Every function of a library, and of libc those that a glob matches."""
    (path, _), trace = library(tmp_path), tmp_path / "t.trace"
    probes = ("p:lib/* libthree.so:*", "p:c libc.so.6:str[dl]*", "p:own [sn]*", "p:plt/* PLT:thr*")
    with asked(path) as running:
        laid = ftpatch("probe", *running.pid, *probes, "-o", trace, "--keep", "-v")
        assert laid.code == 0, laid.err
        assert all(": c/" in line or ": lib/" in line for line in laid.err.splitlines())
        assert running.ask("c20") == total(20)
        assert running.ask("t2") == "400"
        _taken_out(running)
        assert ftpatch("check", *running.pid).code == 0
    counted, _ = hits(trace)
    assert counted["lib/three"] == counted["plt/three"] == 20
    assert counted["own/six"] == counted["own/named"] == 20
    assert counted["c/strdup"] == 400
    assert counted["c/strlen"] >= 800, "the program's calls, and those of strdup"
    with asked(path) as running:
        for words, text in {
            ("p:* libc.so.6:*",): "functions, more than 1,000; use a narrower one, or --limit ",
            ("p:* libthree.so:xyz*",): "libthree.so: no function matches 'xyz*'",
            ("p:* libfour.so:*",): "no library 'libfour.so' is loaded",
        }.items():
            said = ftpatch("probe", *running.pid, *words, "--seconds", "1")
            assert said.code == 2 and text in said.err, said.err
