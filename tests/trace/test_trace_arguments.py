# SPDX-License-Identifier: MIT
"""Arguments by name and type: what programs print of their own arguments, traces have too."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import ftpatch, patched_process
from tests.support.sampling import scaled
from tests.support.tracer_programs import SOURCES, run, traced
from tests.support.typed_programs import Build, calls, missing, recorded
from tests.support.typed_random import FUNCTIONS, random_program

COMPILERS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("x86_64", "arm64", "i386", "riscv64"), ("gcc", "clang")
)
COMPILERS |= dict.fromkeys(
    ("arm", "loongarch64", "ppc64le", "s390x"), ("gcc",)
)  # clang leaves no pads
BUILDS = [
    Build(arch, compiler, level)
    for arch in COMPILERS
    for compiler in COMPILERS[arch]
    for level in ("-O0", "-O2")
]
FLOATS = {"mix.a", "mix.f", "pairs.f", "other.ld", "tight.z"}
MISSING = {
    "x86_64": {
        *FLOATS,
        *("pairs.m.d", "pairs.l", "many.f", "many.h", "tight.p", "wide.v", "wide.e"),
    },
    "arm64": {
        *FLOATS,
        *("pairs.l", "many.f.s", "many.g", "many.h", "wide.d", "wide.v", "wide.e"),
    },
    "i386": {
        *("pairs.l.a.1", "pairs.l.a.2", "pairs.f", "pairs.last", "many.f.p.y", "many.f.s"),
        *("many.g", "many.h", "other.ld", "other.t", "tight.z", "tight.tail"),
    },
    "ppc64le": {
        *("mix.a", "mix.f", "pairs.f", "pairs.last", "many.f.s", "many.g", "many.h"),
        *("tight.z", "wide.v", "wide.e"),
        "other.ld",
    },
    "riscv64": {
        *("mix.a", "mix.f", "pairs.m.d", "pairs.l", "many.f.s", "many.g", "many.h"),
        *("other.ld", "tight.z", "wide.v", "wide.e"),
    },
    "s390x": {
        *("many.f", "many.g", "many.h", "mix.a", "mix.f", "other.ld", "other.t", "pairs.f"),
        *("pairs.l", "pairs.m", "tight.p", "tight.z", "wide.e", "wide.v", "wide.w", "widths.f"),
    },
    "arm": {
        *("mix.a", "mix.f", "pairs.f", "pairs.l", "pairs.last", "many.f.s", "many.f.p.y"),
        *("many.g", "many.h", "other.ld", "tight.z"),
    },
}
MISSING["loongarch64"] = MISSING["riscv64"]
"""Values that are in registers that are not recorded, or in memory."""
OUTERMOST = {"main.argc", "main.argv"}
"""On i386 they are on the stack, and missing if main() begins at the end of a page of it: the
tracer does not read a page that may not be there for a thread's outermost call."""
DONE_WITHOUT = {
    *("other.n", "other.ld", "tight.z", "wide.w", "local.unused", "count.none", "count.3"),
    *("add.p", "many.f", "by_address.none", "hidden.n", "shown.twice"),
}
"""Those that compilers may leave out: functions do not use them, or all calls have the same."""
COPIES = {"local", "count", "hidden", "lambda", "Left", "skips"}
"""Functions that compilers may call otherwise; a constructor with virtual bases."""
LOADED = {arch: {"pairs"} for arch in ("riscv64", "loongarch64", "s390x")}
"""Functions that begin by loading a structure of which they have the address."""
UNCLEAR = {"ppc64le": {"other"}}
"""Functions with a long double, of which only a program's attributes tell the form, behind an odd
number of words."""
WHOLE = (1 << 32) - 1
COPIED = r"""
#include <stdio.h>
__attribute__((noinline)) static long scaled(const long *at, int by, int n)
{
	long sum = 0;
	for (int i = 0; i < n; i++)
		sum += at[i] * by * by + by / 7;
	return printf("{\"scaled\": {}}\n") + sum;
}
__attribute__((noinline)) int plain(int n, int by)
{
	return printf("{\"plain\": {}}\n") + n * by;
}
int main(int argc, char **argv)
{
	long numbers[] = {argc, 2, 3};
	plain(argc + 2, 5);
	return (scaled(numbers, 3, argc + 2) + scaled(numbers, 3, argc + 1)) == 0;
}
"""
every_build = pytest.mark.parametrize("build", BUILDS, ids=str)


@every_build
@pytest.mark.parametrize("source", ["arguments.c", "arguments.cpp"])
def test_arguments_are_what_the_program_prints(build: Build, source: str, tmp_path: Path) -> None:
    found, raw = set(), set()
    for call in calls(build.program(SOURCES / source, tmp_path), build.arch):
        if call.named is None:
            raw.add(call.name)
        else:
            found |= set(missing(call.printed, call.named, call.name))
    if build.arch == "i386":
        found -= OUTERMOST
    if build.level == "-O0":
        expected = {"Left"} if source.endswith(".cpp") else set()
        others = {"skips"} if build.compiler == "clang" else set()
        assert expected <= raw <= expected | others | {"count"}
        assert found == (MISSING[build.arch] if source.endswith(".c") else set())
    assert raw <= COPIES | LOADED.get(build.arch, set()) | UNCLEAR.get(build.arch, set())
    assert found <= MISSING[build.arch] | (DONE_WITHOUT if build.level != "-O0" else set())


def test_an_outermost_call_has_those_on_the_stack(tmp_path: Path) -> None:
    program = Build("i386", "gcc", "-O2").program(SOURCES / "arguments.c", tmp_path)
    runs = [calls(program, "i386") for _ in range(4)]  # the stack begins elsewhere each time
    names = [call.named for run in runs for call in run if call.name == "main"]
    assert len(names) == 4
    assert {"argc": 1} in [{"argc": one["argc"]} for one in names if one]


@pytest.mark.scaled
@pytest.mark.parametrize(("compiler", "arch"), sorted({(one.compiler, one.arch) for one in BUILDS}))
def test_arguments_of_random_functions(arch: str, compiler: str, tmp_path: Path) -> None:
    for seed in range(scaled(12, 1)):
        build = Build(arch, compiler, ("-O0", "-O2")[seed % 2])
        folder = tmp_path / str(seed)
        folder.mkdir()
        program = build.program(
            random_program(seed, folder, wide=arch not in ("i386", "arm")), folder
        )
        made = calls(program, arch)
        assert len(made) == FUNCTIONS
        raw = [call.name for call in made if call.named is None]
        most = 2 if arch in UNCLEAR else 4
        assert len(raw) <= (FUNCTIONS // most if build.level == "-O2" or most < 4 else 0), raw
        values = sum(len(call.printed) for call in made)
        lost = {
            tuple(path.split(".")[:2])
            for call in made
            for path in missing(call.printed, call.named, call.name)
        }
        assert len(lost) < values * 3 / 4


@pytest.mark.parametrize("source", ["arguments.c", "arguments.cpp"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("form", ["-gdwarf-2", "-gdwarf-4", "-gz", "-fdebug-types-section"])
def test_other_forms_of_debug_information(
    compiler: str, source: str, form: str, tmp_path: Path
) -> None:
    build = Build("x86_64", compiler, "-O0", (form,))
    found = set()
    for call in calls(build.program(SOURCES / source, tmp_path), build.arch):
        if call.name in ("Left", "skips"):
            continue
        assert call.named is not None, call
        found |= set(missing(call.printed, call.named, call.name))
    assert found == (MISSING["x86_64"] if source.endswith(".c") else set())


@pytest.mark.parametrize("how", ["stripped", "split"])
def test_a_program_without_debug_information_has_words(how: str, tmp_path: Path) -> None:
    more = ("-gsplit-dwarf",) if how == "split" else ()
    program = Build("x86_64", "gcc", "-O0", more).program(SOURCES / "arguments.c", tmp_path)
    if how == "stripped":
        subprocess.run(["strip", "--strip-debug", str(program)], check=True)
    file, printed = recorded(program, "x86_64")
    (numbers,) = [values for name, values in printed if name == "widths"]
    words = [numbers[name] & ((1 << 64) - 1 if name == "f" else WHOLE) for name in "abcdef"]
    report = ftpatch("report", file, "--format", "json")
    (call,) = [
        event
        for event in report.json
        if event["function"] == "widths" and event["event"] == "entry"
    ]
    assert "arguments" not in call
    assert [word & WHOLE for word in call["args"][:5]] + call["args"][5:] == words
    graph = ftpatch("report", file, "--format", "function_graph")
    assert f"widths({', '.join(map(hex, call['args']))});" in graph.out
    assert not report.err and "arguments" not in graph.out


def test_copies_have_words(tmp_path: Path) -> None:
    """Their symbols say that they are called otherwise than declared."""
    source = tmp_path / "copies.c"
    source.write_text(COPIED)
    program = Build("x86_64", "gcc", "-O2").program(source, tmp_path)
    symbols = subprocess.run(["nm", str(program)], check=True, capture_output=True, text=True)
    copies = {line.split()[2] for line in symbols.stdout.splitlines() if ".constprop" in line}
    file, _ = recorded(program, "x86_64")
    entries = [
        event
        for event in ftpatch("report", file, "--format", "json").json
        if event["event"] == "entry"
    ]
    of = {event["function"]: event.get("arguments") for event in entries}
    assert "scaled.constprop.0" in copies
    assert of["scaled.constprop.0"] is None
    assert of["plain"] == {"n": 3, "by": 5}


def test_local_functions_without_a_parameter(tmp_path: Path) -> None:
    """Clang leaves out what a local function does not use, under the function's own name."""
    build = Build("x86_64", "clang", "-O2")
    of = {
        call.name: call.named
        for call in calls(build.program(SOURCES / "arguments.c", tmp_path), "x86_64")
    }
    assert of["local"] is None
    assert of["call"] is not None


def test_every_format_with_arguments(tmp_path: Path) -> None:
    program = Build("x86_64", "gcc", "-O0").program(SOURCES / "arguments.c", tmp_path)
    file, _ = recorded(program, "x86_64")
    graph = ftpatch("report", file, "--format", "function_graph").out
    assert "widths(a=-1, b=255, c=-2, d=65535, e=4000000000, f=-5);" in graph
    assert "mix(a=<float>, b=2, f=<float>, c=-4);" in graph
    assert "tight(p=<stack>, z=<float>, tail=43);" in graph
    assert "var(n=1, ...);" in graph
    function = ftpatch("report", file, "--format", "function").out
    assert "mode_name(mode=MODE_FAST)\n" in function
    chrome = json.loads(ftpatch("report", file, "--format", "chrome").out)
    shown = [event["args"] for event in chrome["traceEvents"] if event.get("name") == "small"]
    assert shown[0]["arguments"] == {"n": 4}
    assert shown[0]["args"][0] == "0x4"
    perfetto = tmp_path / "perfetto"
    assert ftpatch("report", file, "--format", "perfetto", "-o", perfetto).code == 0
    assert b"MODE_FAST" in perfetto.read_bytes()


@pytest.mark.scaled
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_damaged_debug_information(compiler: str, tmp_path: Path) -> None:
    build = Build("x86_64", compiler, "-O2", ("-fdebug-types-section",))
    program = build.program(SOURCES / "arguments.cpp", tmp_path)
    file, _ = recorded(program, "x86_64")
    with program.open("rb") as held:
        places = [
            range(section["sh_offset"], section["sh_offset"] + section["sh_size"])
            for section in ELFFile(held).iter_sections()
            if section.name.startswith(".debug") and section["sh_size"]
        ]
    whole, damaged = program.read_bytes(), tmp_path / "damaged"
    words = ("report", file, "--image", damaged, "--force", "--format", "function_graph")
    draw, told = random.Random(compiler), 0
    for _ in range(scaled(400, 20)):
        raw = bytearray(whole)
        for _ in range(draw.choice((1, 3, 30))):
            raw[draw.choice(draw.choice(places))] = draw.choice((0, 1, 0xFF, draw.getrandbits(8)))
        damaged.write_bytes(raw)
        report = ftpatch(*words)
        assert report.code == 0, report.err
        notes = [line for line in report.err.splitlines() if "arguments as recorded" in line]
        assert len(notes) <= 1
        told += len(notes)
        assert "shop::Order::add(" in report.out and "most<short>" in report.out
    assert told


def test_debug_information_is_not_read_without_arguments(tmp_path: Path) -> None:
    program = Build("x86_64", "gcc", "-O0").program(SOURCES / "arguments.c", tmp_path)
    file = tmp_path / "trace"
    target = traced(program, "function_graph")
    run(target, cwd=tmp_path, env={"FTPATCH_TRACE": str(file)})
    script = "import sys; sys.modules['elftools'] = None"
    done = patched_process(script, "report", file, "--format", "json")
    assert done.code == 0, done.err
    assert done.json
