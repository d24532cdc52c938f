# SPDX-License-Identifier: MIT
"""A wildcard is a probe for each function that it matches: as nm lists them, and as often as gdb
and the program itself count their calls."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
from pathlib import Path

import pytest

import ftpatch as api
from ftpatch.cli.status_row import inserted_words
from tests.support.command import Result, ftpatch
from tests.support.tracer_programs import run

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define CALLED __attribute__((noinline, noipa))
CALLED int str_one(int n) { __asm__ volatile(""); return n + 1; }
CALLED int str_two(int n) { return str_one(n) * 2 + str_one(n + 1); }
static CALLED int strange(int n) { return str_two(n) ^ 5; }
int also_one(int) __attribute__((alias("str_one")));
int str_alias(int) __attribute__((alias("str_one")));
CALLED int other(int n) { return strange(n) - 1; }
int str_data = 3;
int main(void) {
    char *volatile block;
    for (int i = 0; i < 40; i++) { block = malloc(i + 1); other(i); if (i % 2) free(block); }
    printf("%d\n", (int)strlen(getenv("NOWHERE") ? "a" : "abc"));
    return 0;
}
"""
CALLS = {"str_one": 80, "str_two": 40, "strange": 40}
CPP = r"""
#define CALLED __attribute__((noinline, noipa))
namespace shop {
struct Price { int n; CALLED Price operator*(int by) { return {n * by}; } };
struct Cart {
    int n;
    CALLED void add(int by) { n += by; }
    CALLED void add(long by, int) { n += (int)by; }
    CALLED int *operator[](int) { return &n; }
    CALLED int all() { return n; }
};
}
CALLED shop::Price operator*(int by, shop::Price one) { return {one.n * by + 1}; }
int main() {
    shop::Price price = 2 * shop::Price{1};
    shop::Cart cart{0};
    for (int i = 0; i < 3; i++) { cart.add((price * i).n); cart.add(1L, 2); }
    return *cart[0] + cart.all() - 24;
}
"""


def _built(folder: Path, source: str, name: str = "prog.c", *flags: str) -> Path:
    path = folder / name
    path.write_text(source)
    compiler = "g++" if path.suffix == ".cc" else "gcc"
    out = path.with_suffix("")
    words = [compiler, "-O1", "-fno-builtin", *flags, str(path), "-o", str(out)]
    subprocess.run(words, check=True)
    return out


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return _built(tmp_path, SOURCE)


def _probed(program: Path, *words: str) -> Result:
    return ftpatch("probe", program, *words, "-o", program.with_name("out"), "--force")


def _hits(program: Path, *words: str) -> dict[str, int]:
    """How often each probe was hit."""
    said, trace = _probed(program, *words), program.with_name("trace")
    assert said.code == 0, said.err
    trace.unlink(missing_ok=True)
    out = program.with_name("out")
    assert run(out, [], cwd=program.parent, env={"FTPATCH_TRACE": str(trace)}).status == 0
    rows = ftpatch("report", trace, "--json").json
    return {row["probe"]: row["hits"] for row in rows if "hits" in row}


def _functions(program: Path, glob: str) -> dict[int, set[str]]:
    """The functions whose names a glob matches, by address, as readelf lists them."""
    said = subprocess.run(["readelf", "-sW", program], capture_output=True, text=True, check=True)
    out: dict[int, set[str]] = {}
    for line in said.stdout.splitlines():
        words = line.split()
        is_function = len(words) == 8 and words[3] == "FUNC" and words[6] != "UND"
        if is_function and fnmatch.fnmatchcase(words[7], glob):
            out.setdefault(int(words[1], 16), set()).add(words[7])
    return out


def _gdb_counts(program: Path, places: dict[str, str]) -> dict[str, int]:
    """How often gdb's breakpoints at these link addresses are hit."""
    words = ["gdb", "-nx", "-batch", "-ex", "starti"]
    for number, at in enumerate(places.values(), 1):
        words += ["-ex", f"break *({at})", "-ex", f"ignore {number} 100000"]
    words += ["-ex", "continue", "-ex", "info breakpoints", str(program)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    hit = dict.fromkeys(places, 0)
    number = 0
    for line in said[said.index("Num ") :].splitlines():
        if found := re.match(r"(\d+) ", line):
            number = int(found[1])
        elif found := re.search(r"already hit (\d+) time", line):
            hit[[*places][number - 1]] = int(found[1])
    return hit


@pytest.mark.parametrize("glob", ["str*", "*", "str_?ne", "[os]t[hr]*", "*_one"])
def test_the_functions_are_those_of_readelf(program: Path, glob: str) -> None:
    said = _probed(program, f"p:* {glob}", "--json", "--dry-run")
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in said.out.splitlines()]
    expected = _functions(program, glob)
    skipped = len(expected) - len(rows)
    assert 0 <= skipped == int((re.match(r"ftpatch: (\d+) ", said.err) or [0, 0])[1])
    assert len({row["name"] for row in rows}) == len(rows) > 0
    places = {row["definition"].split()[1] for row in rows}
    for names in expected.values():
        assert skipped or len(names & places) == 1, names
    assert places <= set[str]().union(*expected.values())


def test_counts_are_the_programs(program: Path) -> None:
    assert _hits(program, "p:* str*") == CALLS
    assert _hits(program, "p:mine/* str*") == {f"mine/{name}": n for name, n in CALLS.items()}
    assert _hits(program, "p:all str*") == {f"all/{name}": n for name, n in CALLS.items()}
    named = {f"p_{name}_0": n for name, n in CALLS.items()}
    back = {f"back/in_{name}": n for name, n in CALLS.items()}
    assert _hits(program, "p str*", "r:back/in str* ret=$retval:s32") == named | back
    assert _hits(program, "p:* str_(one|two)", "--regex") == {"str_one": 80, "str_two": 40}
    assert _hits(program, "p:* other", "p:main m[a]in") == {"other": 40, "main/main": 1}


def test_every_library_call(program: Path) -> None:
    plt = subprocess.run(
        ["objdump", "-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got", program],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    entries = re.findall(r"^([0-9a-f]+) <(\w+)@plt>:", plt, re.MULTILINE)
    own = _built(program.parent, SOURCE, "fixed.c", "-no-pie")
    found = _hits(program, "p:calls PLT:*", "r:back [!_]*@plt ret=$retval")
    calls = {name.removeprefix("calls/"): n for name, n in found.items() if "calls/" in name}
    assert set(calls) == {name for _, name in entries}
    assert calls["malloc"] == 40 and calls["free"] == 20 and calls["printf"] == 1
    back = {name.removeprefix("back/"): n for name, n in found.items() if "back/" in name}
    assert back == {name: n for name, n in calls.items() if name[0] != "_"}
    fixed = _hits(own, "p:* PLT:*")
    rows = ftpatch("probe", own, "p:* PLT:*", "--json", "--dry-run").json
    at = {row["name"]: row["address"] for row in rows}
    assert fixed == _gdb_counts(own, at) and fixed["malloc"] == 40
    said = _probed(program, "p:gone PLT:xyz*")
    assert said.code == 2 and "no function matches 'PLT:xyz*'" in said.err


def test_refusals(program: Path) -> None:
    for words, text in {
        ("p xyz*",): "no function matches 'xyz*'",
        ("p mall*",): "write PLT:mall* for what it imports",
        ("p str*+4",): "are probed at their entry; remove +0x4",
        ("p:* str*", "--limit", "2"): "matches 3 functions, more than 2; use a narrower one, or",
        ("r:* _star*",): "none of the functions that '_star*' matches can be probed: _start: ",
        ("p:* str* @nowhere",): "str_one: @nowhere: no such symbol",
        ("p:* 0x1000",): "`*` in a name stands for that of a function",
        ("p:*x* str*",): "event name must follow the same rules",
        ("p:other str_on", "p:* str*"): "no such function 'str_on'",
        ("p:* (", "--regex"): "is not a regular expression",
        ("p:* str*", "--limit", "-1"): "--limit -1 is negative",
    }.items():
        said = _probed(program, *words)
        assert said.code == 2 and text in said.err, (words, said.err)
        assert not program.with_name("out").exists()
    assert _probed(program, "p:* str*", "--limit", "3").code == 0
    assert _probed(program, "p:* str*", "--limit", "0").code == 0


def test_a_wildcard_skips_and_a_name_does_not(program: Path) -> None:
    words = ("r:* *t*", "--dry-run")
    said = _probed(program, *words)
    assert said.code == 0, said.err
    assert re.fullmatch(
        r"ftpatch: \d+ functions? matched, but (is|are) not probed; -v says why\n", said.err
    )
    told = _probed(program, *words, "-v").err.splitlines()
    assert len(told) == int(said.err.split()[1])
    (start,) = (line for line in told if " _start: " in line)
    assert "is not a known function entry" in start
    assert not _probed(program, *words, "-q").err
    named = _probed(program, "r:start _start", *words)
    assert named.code == 2 and "start: " in named.err
    going = _probed(program, "r:start _start", *words, "--keep-going")
    assert going.code == 1 and going.out


def test_names_stay_apart(tmp_path: Path) -> None:
    """Functions of one name in two files, and event names that are taken."""
    static = "static __attribute__((noinline, noipa)) int twin(int n) { return n + %d; }\n"
    (tmp_path / "b.c").write_text(static % 2 + "int second(int n) { return twin(n); }\n")
    source = static % 1 + "int second(int);\nint main(void) { return twin(second(twin(-4))); }\n"
    program = _built(tmp_path, source, "a.c", str(tmp_path / "b.c"))
    assert _hits(program, "p:* tw*") == {"twin": 1, "twin_1": 2}
    found = _hits(program, "p:* tw*", "p:twin main")
    assert sorted(found.items())[0] == ("twin", 1) and set(found) == {"twin", "twin_1", "twin_2"}
    again = ftpatch("report", tmp_path / "trace", "-f", "twin_1", "--json").json
    assert {row["probe"] for row in again if "hits" in row} == {"twin_1"}


def test_names_of_cpp(tmp_path: Path) -> None:
    program = _built(tmp_path, CPP, "cart.cc")
    assert _hits(program, "p:times shop::Price::operator*") == {"times": 3}
    assert _hits(program, "p:times shop::Price::operator*(int)") == {"times": 3}
    assert _hits(program, "p:times operator*") == {"times": 1}
    found = _hits(program, "p:* shop::Cart::*")
    assert found == {
        "shop__Cart__add": 3,
        "shop__Cart__add_1": 3,
        "shop__Cart__all": 1,
        "shop__Cart__operator__": 1,
    }


def test_from_python(program: Path) -> None:
    image, out = api.open(program), program.with_name("out")
    done = image.probe(["p:mine/* str.*", "r:* _st.*|other"], regex=True, limit=3, output=out)
    assert {one.name for one in done.probes} == {*(f"mine/{name}" for name in CALLS), "other"}
    assert [one.reason.split(":")[0] for one in done.skipped] == ["_start"]
    with pytest.raises(api.UsageError, match="matches 3 functions, more than 2"):
        image.probe("p:* str*", limit=2, output=program.with_name("none"))


def test_undo_gives_the_program_back(program: Path) -> None:
    assert _probed(program, "p:* *", "p:calls PLT:*").code == 0
    out = program.with_name("out")
    assert ftpatch("undo", out, "--in-place").code == 0
    assert out.read_bytes() == program.read_bytes()


def test_status_names_a_few() -> None:
    """A file may have thousands: one line is one line."""
    words = {"probes": [f"p:probes/n{number} f{number}" for number in range(10)]}
    assert inserted_words(words).endswith(", p:probes/n7 f7 and 2 more")
    assert inserted_words({"probes": words["probes"][:8]}).endswith(", p:probes/n7 f7")


IDLE = "".join(f"CALLED void idle_{n}(void) {{ __asm__ volatile(''); }}\n" for n in range(30))


@pytest.mark.parametrize("idle", [9, 30])
def test_probes_without_hits_do_not_hide_the_others(tmp_path: Path, idle: int) -> None:
    lines = [line.replace("''", '""') for line in IDLE.splitlines()[:idle]]
    program = _built(tmp_path, SOURCE.replace("int main", "\n".join(lines) + "\nint main"))
    hits = _hits(program, "p:* str*", "p:* idle_*")
    assert hits == CALLS | {f"idle_{n}": 0 for n in range(idle)}
    table = ftpatch("report", program.with_name("trace")).out.partition("# PROBE ")[2]
    named = [line.split()[1] for line in table.splitlines()[1:]]
    if idle > 20:
        assert {*named} == {*CALLS, "and"} and f"and {idle} probes without hits" in table
    else:
        assert sorted(named) == sorted(hits)
