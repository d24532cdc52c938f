# SPDX-License-Identifier: MIT
"""The call tree that is recorded is the one that a debugger sees."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.sampling import PRODUCT
from tests.support.trace_events import ENTRIES, EXITS, LEFT, Trace, balance, read_trace
from tests.support.trace_gdb import tree_by_gdb
from tests.support.tracer_matrix import forms
from tests.support.tracer_programs import ARCHES, Form, build, emulator, run, traced

MOST = 9000
"""Calls that a debugger has to stop at."""
DEEP = ("--max-stack", "8192")
AFTER = 16
"""Bytes between a function's start and the address after its site's call, at most."""
PROGRAMS = {
    "x86_64": {
        "tree.c": [
            ("no-pie", "-O0", "pad"),
            ("pie", "-O2", "pad"),
            ("static", "-O2", "fentry"),
            ("pie", "-O3", "fentry"),
            ("static", "-O3", "pad"),
            ("pie", "-O0", "fentry"),
        ],
        "calls.c": [("pie", "-O3", "pad")],
        "many.c": [("static", "-O2", "pad"), ("no-pie", "-O0", "fentry")],
    },
    "i386": {
        "tree.c": [
            ("no-pie", "-O0", "pad"),
            ("pie", "-O2", "pad"),
            ("static", "-O2", "fentry"),
            ("no-pie", "-O3", "fentry"),
            ("static", "-O0", "fentry"),
            ("pie", "-O3", "pad"),
        ],
        "calls.c": [("no-pie", "-O2", "pad")],
        "many.c": [("static", "-O3", "pad"), ("pie", "-O0", "pad")],
    },
    "arm64": {
        "tree.c": [("no-pie", "-O0", "pad"), ("pie", "-O2", "pad"), ("static", "-O3", "pad")],
        "calls.c": [("static", "-O2", "pad")],
        "many.c": [("pie", "-O3", "pad"), ("no-pie", "-O2", "pad")],
    },
    "riscv64": {
        "tree.c": [("no-pie", "-O0", "pad"), ("pie", "-O2", "pad"), ("static", "-O3", "pad")],
        "calls.c": [("static", "-O2", "pad")],
        "many.c": [("pie", "-O3", "pad"), ("no-pie", "-O2", "pad")],
    },
    "ppc64le": {
        "tree.c": [("no-pie", "-O0", "pad"), ("pie", "-O2", "pad"), ("static", "-O3", "pad")],
        "calls.c": [("static", "-O2", "pad")],
        "many.c": [("pie", "-O3", "pad"), ("no-pie", "-O2", "pad")],
    },
    "arm": {
        "tree.c": [("no-pie", "-O0", "pad"), ("pie", "-O2", "pad"), ("static", "-O3", "pad")],
        "calls.c": [("static", "-O2", "pad")],
        "many.c": [("pie", "-O3", "pad"), ("no-pie", "-O2", "pad")],
    },
    "s390x": {
        "tree.c": [("no-pie", "-O0", "pad"), ("pie", "-O2", "fentry"), ("static", "-O3", "pad")],
        "calls.c": [("static", "-O2", "pad")],
        "many.c": [("pie", "-O3", "pad"), ("no-pie", "-O2", "fentry")],
    },
}
"""Without threads, and all of whose calls return: what a debugger can follow."""
LEAVING = [
    Form("x86_64", "pie", "-O2"),
    Form("x86_64", "static", "-O0"),
    Form("i386", "no-pie", "-O2"),
    Form("i386", "pie", "-O0"),
    Form("arm64", "pie", "-O2"),
    Form("arm64", "static", "-O0"),
    Form("riscv64", "pie", "-O2"),
    Form("riscv64", "static", "-O0"),
    Form("ppc64le", "pie", "-O2"),
    Form("ppc64le", "static", "-O0"),
    Form("arm", "pie", "-O2"),
    Form("arm", "static", "-O0"),
    Form("s390x", "pie", "-O2"),
    Form("s390x", "static", "-O0"),
]
"""Of programs that leave calls without a return. __fentry__: nested functions are not traced."""
CASES = [
    (name, Form(arch, link, level, site))
    for arch, programs in PROGRAMS.items()
    for name, of in programs.items()
    for link, level, site in (
        [(form.link, form.level, form.site) for form in forms(arch)] if PRODUCT else of
    )
]


def _functions(program: Path) -> dict[str, int]:
    """Start of each function that the source has, by name; gcc's copies of them included. Of what
    has several names (constructors, destructors) one. Of two entries the local one, where every
    call passes (PPC64_LOCAL_ENTRY_OFFSET of binutils' elf/ppc64.h)."""
    found, own = {}, False
    with program.open("rb") as file:
        elf = ELFFile(file)
        marked = elf["e_machine"] == "EM_ARM"  # bit 0: in T32
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            if symbol["st_info"]["type"] == "STT_FILE":
                own = Path(symbol.name).stem == program.stem
            elif symbol["st_info"]["type"] == "STT_FUNC" and ".cold" not in symbol.name:
                local = symbol["st_info"]["bind"] == "STB_LOCAL"
                if (local and own) or symbol.name == "main":
                    behind = 1 << symbol["st_other"]["local"] >> 2 << 2
                    found[symbol.name] = (int(symbol["st_value"]) & ~marked) + behind
    return {name: at for at, name in {at: name for name, at in found.items()}.items()}


def _named(functions: dict[str, int], place: int) -> str:
    best = max((at, name) for name, at in functions.items() if at < place)
    assert place - best[0] <= AFTER, hex(place)
    return best[1]


def _nested(trace: Trace, functions: dict[str, int]) -> list[tuple[int, str]]:
    """Each call, and how many are open around it."""
    (thread,) = trace.threads
    found: list[tuple[int, str]] = []
    depth = 0
    for event in thread.events:
        if event.type in ENTRIES:
            found.append((depth, _named(functions, event.func + trace.base)))
            depth += 1
        else:
            depth -= event.func if event.type == LEFT else 1
    return found


def _sequence(trace: Trace, functions: dict[str, int]) -> list[tuple[str, str]]:
    (thread,) = trace.threads
    lines = []
    for event in thread.events:
        assert event.type != LEFT
        kind = "entry" if event.type in ENTRIES else "exit"
        lines.append((kind, _named(functions, event.func + trace.base)))
    return lines


@dataclass(frozen=True)
class Seen:
    """A program, its functions, and the calls of them that gdb saw."""

    program: Path
    arch: str
    functions: dict[str, int]
    calls: list[tuple[str, str]]


def _watched(name: str, form: Form, folder: Path) -> Seen:
    gdb = "gdb-multiarch" if emulator(form.arch) else "gdb"
    if shutil.which(gdb) is None:
        pytest.skip(f"{gdb} is not installed")
    program = build(form, name, folder)
    functions = _functions(program)
    sites = {name: at for name, at in functions.items() if _has_site(program, at, form)}
    calls = tree_by_gdb(program, sites, form.arch, emulator(form.arch))
    if not any(kind == "exit" for kind, _ in calls):
        pytest.skip("gdb cannot run programs here")
    assert 500 < len(calls) / 2 < MOST
    return Seen(program, form.arch, functions, calls)


@pytest.fixture(
    scope="module",
    params=[pytest.param(case, id=f"{case[0]}-{case[1]}") for case in CASES],
)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    name, form = request.param
    return _watched(name, form, tmp_path_factory.mktemp("tree"))


def _has_site(program: Path, start: int, form: Form) -> bool:
    """By objdump: whether a pad or a call of __fentry__ stands where the function begins."""
    objdump = ARCHES[form.arch].gcc.removesuffix("gcc") + "objdump"
    command = [objdump, "-d", f"--start-address={start}", f"--stop-address={start + AFTER}"]
    text = subprocess.run([*command, program], capture_output=True, text=True, check=True).stdout
    return "__fentry__" in text if form.site == "fentry" else "nop" in text


def _recorded(program: Path, tracer: str, room: Path, *options: str, arch: str = "x86_64") -> Trace:
    patched = traced(program, tracer, *options)
    target = room / f"{tracer}{''.join(options)}.trace"
    done = run(patched, cwd=room, arch=arch, env={"FTPATCH_TRACE": str(target)})
    assert done.status == 0, str(done)
    return read_trace(target)


def test_entries_and_exits(seen: Seen, tmp_path: Path) -> None:
    trace = _recorded(seen.program, "function_graph", tmp_path, *DEEP, arch=seen.arch)
    assert not any(trace.lost.values()) and balance(trace.threads[0]) == []
    assert _sequence(trace, seen.functions) == seen.calls
    times = [event.time for event in trace.threads[0].events]
    assert times == sorted(times)


@pytest.mark.parametrize("form", LEAVING, ids=str)
@pytest.mark.parametrize("name", ["nested.c", "ends.cpp"])
def test_calls_that_are_left(name: str, form: Form, tmp_path: Path) -> None:
    """By goto out of a nested function, by longjmp and by exceptions."""
    seen = _watched(name, form, tmp_path)
    trace = _recorded(seen.program, "function_graph", tmp_path, arch=seen.arch)
    assert any(event.type == LEFT for event in trace.events)
    depth, expected = 0, []
    for kind, function in seen.calls:
        if kind == "entry":
            expected.append((depth, function))
        depth += 1 if kind == "entry" else -1
    assert _nested(trace, seen.functions) == expected


def test_entries_alone(seen: Seen, tmp_path: Path) -> None:
    trace = _recorded(seen.program, "function", tmp_path, *DEEP, arch=seen.arch)
    assert _sequence(trace, seen.functions) == [call for call in seen.calls if call[0] == "entry"]


def test_where_calls_come_from(seen: Seen, tmp_path: Path) -> None:
    """Each address lies behind a call, in a function of the program or in a library."""
    trace = _recorded(seen.program, "function", tmp_path, *DEEP, arch=seen.arch)
    (thread,) = trace.threads
    named = {_named(seen.functions, event.func + trace.base) for event in thread.events}
    assert named == {name for kind, name in seen.calls if kind == "entry"}
    assert all(event.parent for event in thread.events)


def test_hits_of_many_functions(tmp_path: Path) -> None:
    """Wherever they lie, and thus wherever in the table."""
    for align in (1, 8, 16, 32, 64, 128, 256, 512):
        program = build(Form(more=(f"-falign-functions={align}",)), "many.c", tmp_path)
        trace = _recorded(program, "function_profile", tmp_path, "--max-stack", str(8 + align))
        hits = [count for count, total, own in trace.profile.values() if 0 <= own <= total]
        assert sorted(hits) == [1] + [3] * 360, align


def test_hits_of_a_profile(seen: Seen, tmp_path: Path) -> None:
    trace = _recorded(seen.program, "function_profile", tmp_path, *DEEP, arch=seen.arch)
    hits = Counter[str]()
    for place, (count, total, own) in trace.profile.items():
        assert 0 <= own <= total
        hits[_named(seen.functions, place + trace.base)] += count
    assert hits == Counter(name for kind, name in seen.calls if kind == "entry")


def test_what_is_too_deep_is_left_out(tmp_path: Path) -> None:
    """Entries beyond the ret_stack are counted, and all others nest as before."""
    program = build(Form(), "tree.c", tmp_path)
    whole = _recorded(program, "function_graph", tmp_path)
    trace = _recorded(program, "function_graph", tmp_path, "--max-stack", "16")
    assert balance(trace.threads[0]) == []
    recorded = sum(event.type in ENTRIES for event in trace.events)
    assert trace.lost["depth"] > 50
    assert recorded + trace.lost["depth"] == sum(event.type in ENTRIES for event in whole.events)
    assert sum(event.type in EXITS for event in trace.events) == recorded
