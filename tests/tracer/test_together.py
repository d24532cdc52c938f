# SPDX-License-Identifier: MIT
"""A tracer, probes and watches in one program: each records what it records alone, and what the
program itself prints; and each command is undone by itself."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Result, ftpatch
from tests.support.sampling import SEED, scaled
from tests.support.tracer_programs import ARCHES, run

SOURCE = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
volatile int stock = 40;
static jmp_buf out;
__attribute__((noinline)) int price(int n) { return n * 3; }
__attribute__((noinline)) int sell(int qty)
{
	if (qty > 50)
		longjmp(out, qty);
	stock -= qty;
	int paid = price(qty);
	printf("sell %d %d\n", qty, paid);
	return paid;
}
__attribute__((noinline)) int deep(int n) { return n ? deep(n - 1) + 1 : sell(2); }
static void *work(void *a) { for (int i = 0; i < 3; i++) sell(1); return a; }
int main(int argc, char **argv)
{
	pthread_t thread;
	setvbuf(stdout, 0, _IONBF, 0);
	sell(3);
	deep(5);
	if (!setjmp(out))
		deep(sell(99));
	pthread_create(&thread, 0, work, 0);
	pthread_join(thread, 0);
	if (argc > 1) {
		if (!fork()) { sell(4); exit(0); }
		wait(0);
	}
	printf("left %d\n", stock);
	return 0;
}
"""
PROBES = ("p:sold sell qty=$arg1:s32", "r:paid sell ret=$retval:s32")
WATCH = ("watch", "stock:rw-")
PROBE = ("probe", *PROBES)
KINDS = {"event": "calls", "probe": "hits", "watch": "accesses"}
watches = pytest.mark.skipif(os.uname().machine != "x86_64", reason="watches need x86-64")


def _built(folder: Path, arch: str = "x86_64", *more: str) -> Path:
    one = ARCHES[arch]
    if shutil.which(one.gcc) is None:
        pytest.skip(f"{one.gcc} is not installed")
    (folder / "shop.c").write_text(SOURCE)
    words = [one.gcc, "-O1", "-pthread", one.pad, *more, str(folder / "shop.c")]
    subprocess.run([*words, "-o", str(folder / "shop")], check=True)
    return folder / "shop"


def _laid(program: Path, place: Path, commands: Sequence[Sequence[str]]) -> list[bytes]:
    """Carry out commands one after the other; return the file before each."""
    shutil.copy2(program, place)
    before = []
    for verb, *words in commands:
        before.append(place.read_bytes())
        done = ftpatch(verb, place, *words, "--in-place", "-q")
        assert done.code == 0, done.err
    return before


def _run(program: Path, trace: Path, *words: str, arch: str = "x86_64") -> str:
    for one in trace.parent.glob(trace.name + "*"):
        one.unlink()
    copy = {"FTPATCH_TRACE": str(trace)}
    if arch == os.uname().machine:
        env = os.environ | copy
        return subprocess.run(
            [program, *words], env=env, check=True, capture_output=True, text=True
        ).stdout
    return run(program, words, cwd=trace.parent, arch=arch, env=copy).out.decode()


def _events(done: Result) -> list[dict[str, Any]]:
    """Events without what differs from run to run."""
    assert done.code == 0, done.err
    return [row for row in done.json if "time" in row]


def _told(rows: list[dict[str, Any]], kind: str) -> list[list[tuple[Any, ...]]]:
    """The events of a kind, of each thread by itself."""
    names = {"calls": ("event", "function", "depth"), "hits": ("probe", "caller", "values")}
    fields = names.get(kind, ("watch", "access", "function", "old", "new"))
    out: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        if _kind(row) == kind:
            told = tuple(str(row.get(name)) for name in fields)
            out.setdefault(row["tid"], []).append(told)
    return [*out.values()]


def _kind(row: dict[str, Any]) -> str:
    return next(kind for name, kind in KINDS.items() if name in row)


@watches
@pytest.mark.parametrize("tracer", ["function_graph", "function"])
def test_any_order(tracer: str, tmp_path: Path) -> None:
    """Each kind of event is what its command records alone."""
    program, trace = _built(tmp_path), tmp_path / "trace"
    plain = subprocess.run([program, "x"], capture_output=True, text=True, check=True).stdout
    enable = ("enable", "--tracer", tracer)
    alone = {}
    for kind, command in (("calls", enable), ("hits", PROBE), ("accesses", WATCH)):
        _laid(program, tmp_path / "alone", [command])
        assert _run(tmp_path / "alone", trace, "x") == plain
        alone[kind] = _told(_events(ftpatch("report", trace, "--json")), kind)
        assert alone[kind]
    orders = [*itertools.permutations([enable, PROBE, WATCH])]
    for order in orders[: scaled(6, 2)]:
        place = tmp_path / "all"
        before = _laid(program, place, order)
        assert _run(place, trace, "x") == plain
        rows = _events(ftpatch("report", trace, "--json"))
        for kind, wanted in alone.items():
            assert _told(rows, kind) == wanted, (order, kind)
        times = [row["time"] for row in rows]
        assert times == sorted(times)
        status = ftpatch("status", place).out
        assert "2 probes" in status and "stock:rw-" in status
        assert ftpatch("watch", place).out == "stock:rw-\n"
        assert len(ftpatch("probe", place).out.splitlines()) == 2
        whole = tmp_path / "whole"
        shutil.copy2(place, whole)
        assert ftpatch("undo", whole, "--all").code == 0
        assert whole.read_bytes() == program.read_bytes()
        for held in reversed(before):
            assert ftpatch("undo", place).code == 0
            assert place.read_bytes() == held


@pytest.mark.parametrize("arch", ["x86_64", "i386", "arm64"])
@pytest.mark.parametrize("flags", ["", "-fcf-protection", "-static"])
def test_hits_are_in_their_calls(arch: str, flags: str, tmp_path: Path) -> None:
    """The program prints what it sells; each of these calls has its hits inside."""
    if arch == "arm64" and flags == "-fcf-protection":
        flags = "-mbranch-protection=standard"
    program, trace = _built(tmp_path, arch, *flags.split()), tmp_path / "trace"
    plain = _run(program, trace, arch=arch)
    place = tmp_path / "both"
    _laid(program, place, [("enable", "--tracer", "function_graph"), PROBE])
    assert _run(place, trace, arch=arch) == plain
    sold = [line.split()[1:] for line in plain.splitlines() if line.startswith("sell")]
    rows = _events(ftpatch("report", trace, "--json", "--image", place, "--force"))
    hits = [row["values"] for row in rows if row.get("probe") == "sold"]
    paid = [str(row["values"]["ret"]) for row in rows if row.get("probe") == "paid"]
    assert [str(one["qty"]) for one in hits if one["qty"] != 99] == [qty for qty, _ in sold]
    assert paid == [paid for _, paid in sold]
    stacks: dict[int, list[str]] = {}
    for row in rows:
        stack = stacks.setdefault(row["tid"], [])
        if row.get("event") == "entry":
            stack.append(row["function"])
        elif "event" in row:
            assert stack.pop() == row["function"]
        else:
            assert stack[-1] == "sell", row
    entries = sum(row.get("event") == "entry" and row["function"] == "sell" for row in rows)
    assert entries == len(hits) == len(sold) + 1


ASKED = (
    "r:deep deep ret=$retval:s32 if $depth < 3",
    "p:inside price n=$arg1:s32 if within(deep)",
    "p:every sell qty=$arg1:s32 stack:fp if every(2)",
    "p:sums price n=$arg1:s32 hist:keys=stack(4):fp:vals=n",
    "p:copied price stack",
    "r:took sell stack(3):fp if $retval:s32 > 6",
)


@pytest.mark.parametrize("arch", ["x86_64", "arm64", "i386"])
@pytest.mark.parametrize("tracer", ["function_graph", "function"])
def test_filters_and_stacks_beside_a_tracer(tracer: str, arch: str, tmp_path: Path) -> None:
    """They see the program as it is without the tracer: its depths are probes', its callers too."""
    more = ["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]
    if arch == "arm64":
        more.append("-mbranch-protection=standard")
    program = _built(tmp_path, arch, *more)
    told = []
    for commands in ([("probe", *ASKED)], [("enable", "--tracer", tracer), ("probe", *ASKED)]):
        place, trace = tmp_path / "place", tmp_path / "trace"
        _laid(program, place, commands)
        assert "left" in _run(place, trace, arch=arch)
        rows = ftpatch("report", trace, "--json", "--image", place).json
        changing = {"time", "tid", "pid", "duration", "ret_ip"}
        hits = [row for row in rows if "probe" in row]
        told.append(
            [
                {name: row[name] for name in row.keys() - changing}
                for row in hits
                if "missed" not in row
            ]
        )
    assert told[0] == told[1]
    assert {row["probe"] for row in told[0]} == {
        "deep",
        "inside",
        "every",
        "sums",
        "took",
        "copied",
    }
    assert any("main" in str(row) for row in told[0])


@watches
def test_filters_and_stacks_of_watches_beside_a_tracer(tmp_path: Path) -> None:
    program = _built(tmp_path, "x86_64", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
    watch = ("watch", "stock:rw- stack if old != new && old > 30")
    told = []
    for commands in ([watch], [("enable", "--tracer", "function_graph"), PROBE, watch]):
        place, trace = tmp_path / "place", tmp_path / "trace"
        _laid(program, place, commands)
        _run(place, trace)
        done = ftpatch("report", trace, "--json", "--image", place)
        told.append(
            [
                (row["access"], row["function"], row["old"], row["new"], row.get("stack"))
                for row in _events(done)
                if "watch" in row
            ]
        )
    assert told[0] == told[1] and len(told[0]) > 2
    assert all(old != new for _, _, old, new, _ in told[0])


@watches
def test_recording_switched_off_and_rings(tmp_path: Path) -> None:
    """Recording that begins switched off is off for all kinds; a ring has one kind."""
    program, trace, place = _built(tmp_path), tmp_path / "trace", tmp_path / "place"
    tracer = ("enable", "--tracer", "function_graph")
    for commands in itertools.permutations([(*tracer, "--off"), PROBE, WATCH]):
        _laid(program, place, commands)
        _run(place, trace)
        done = ftpatch("report", trace, "--json")
        assert done.code == 0 and not _events(done), commands
    _laid(program, place, [tracer, PROBE, WATCH])
    trace.unlink()
    env = os.environ | {"FTPATCH_TRACE": str(trace), "FTPATCH_TRACE_RING": "1"}
    subprocess.run([place], env=env, check=True, stdout=subprocess.DEVNULL)
    kinds = {_kind(row) for row in _events(ftpatch("report", trace, "--json"))}
    assert kinds == {*KINDS.values()}
    for laid, more in (
        ([tracer], (*PROBE, "--ring")),
        ([(*tracer, "--ring")], PROBE),
        ([PROBE], (*tracer, "--ring")),
        ([(*PROBE, "--ring")], tracer),
        ([(*PROBE, "--ring")], WATCH),
    ):
        _laid(program, place, laid)
        before = place.read_bytes()
        done = ftpatch(more[0], place, *more[1:], "--in-place")
        assert done.code == 2 and "a ring (--ring) keeps events of one kind" in done.err, done.err
        assert place.read_bytes() == before


@watches
def test_formats(tmp_path: Path) -> None:
    program, trace, place = _built(tmp_path), tmp_path / "trace", tmp_path / "all"
    _laid(program, place, [PROBE, ("enable", "--tracer", "function_graph"), WATCH])
    _run(place, trace)
    graph = ftpatch("report", trace).out
    assert re.search(
        r"sell\(\) \{\n.*/\* sold: \(sell\+0x0/0x\w+\) qty=3 \*/\n"
        r".*/\* stock\+0x0/0x4: R sell\+0x\w+/0x\w+ 0x28 \*/\n"
        r".*/\* stock\+0x0/0x4: W sell\+0x\w+/0x\w+ 0x28 -> 0x25 \*/\n.* price\(\);\n"
        r".*/\* paid: \(main\+0x\w+/0x\w+ <- sell\) ret=9 \*/\n.*\} /\* sell \*/",
        graph,
    ), graph
    lines = ftpatch("report", trace, "--format", "function").out
    assert re.search(r": sell\n.*: sold: \(sell\+0x0/0x\w+\) qty=3\n.*: stock\+0x0", lines)
    probes = ftpatch("report", trace, "--format", "probes").out
    assert probes.count("sold: (") == 6 and "stock" not in probes and "price" not in probes
    ksym = ftpatch("report", trace, "--format", "ksym").out
    assert "# WATCH" in ksym and "sold" not in ksym
    profile = ftpatch("report", trace, "--format", "profile").out
    assert re.search(r"^ +5 .* price$", profile, re.MULTILINE) and "sold" not in profile
    for name in ("folded", "chrome", "html", "histogram"):
        assert ftpatch("report", trace, "--format", name).code == 0, name
    done = ftpatch("report", trace, "--follow")
    assert done.code == 2 and "several kinds of events" in done.err
    wrong = ftpatch("report", trace, "--format", "nothing")
    assert wrong.code == 2 and "nothing" in wrong.err
    narrow = ftpatch("report", trace, "-f", "price").out
    assert "price" in narrow and "main()" not in narrow


@watches
def test_probes_and_watches_without_a_tracer(tmp_path: Path) -> None:
    program, trace, place = _built(tmp_path), tmp_path / "trace", tmp_path / "all"
    _laid(program, place, [WATCH, PROBE])
    _run(place, trace)
    out = ftpatch("report", trace).out
    assert re.search(r"sold: \(sell.*\n.*stock\+0x0/0x4: R sell.*\n.*: W sell.*\n.*paid: ", out)
    rows = _events(ftpatch("report", trace, "--json"))
    assert {_kind(row) for row in rows} == {"hits", "accesses"}
    assert ftpatch("watch", place, "*:---", "--in-place").code == 0
    _run(place, trace)
    assert {_kind(row) for row in _events(ftpatch("report", trace, "--json"))} == {"hits"}


def test_refusals(tmp_path: Path) -> None:
    program, place = _built(tmp_path), tmp_path / "place"
    traced = tmp_path / "traced"
    _laid(program, traced, [("enable", "--tracer", "function_graph")])
    done = ftpatch("probe", traced, "p sell+2", "-o", place)
    assert done.code == 2 and "is in the code that calls the tracer" in done.err
    probed = tmp_path / "probed"
    _laid(program, probed, [PROBE])
    for words, clause in (
        (("--tracer", "function_profile"), "beside which function_profile cannot be"),
        (("--tracer", "function_graph", "--args"), "beside which --args cannot be"),
        (("--tracer", "function_graph", "--libcalls"), "beside which --libcalls cannot be"),
        (("--tracer", "function_graph", "-f", "nosuch"), "nosuch"),
    ):
        done = ftpatch("enable", probed, *words, "-o", place)
        assert done.code == 2 and clause in done.err, done.err
    for words in (("--tracer", "function_profile"), ("--tracer", "function_graph", "--args")):
        alone = tmp_path / "alone"
        _laid(program, alone, [("enable", *words)])
        done = ftpatch("probe", alone, *PROBES, "-o", place)
        assert done.code == 2 and "run `ftpatch undo`" in done.err, done.err
    done = ftpatch("probe", traced, "p libc.so.6:malloc", "-o", place)
    assert done.code == 2 and "probes of libraries" in done.err
    assert not place.exists()


@watches
def test_traps_are_refused_beside_watches(tmp_path: Path) -> None:
    program, place = _built(tmp_path), tmp_path / "place"
    watched = tmp_path / "watched"
    _laid(program, watched, [WATCH])
    done = ftpatch("probe", watched, "p sell", "--no-optimize", "-o", place)
    assert done.code in (0, 2)
    trapped = tmp_path / "trapped"
    shutil.copy2(program, trapped)
    done = ftpatch("probe", trapped, "p price+5", "--no-optimize", "--in-place", "--json")
    assert done.code == 0 and done.only["way"] == "trap"
    done = ftpatch("watch", trapped, "stock:rw-", "-o", place, "--force")
    assert (
        done.code == 2 and "it needs a trap, which a program with watches cannot have" in done.err
    )


@watches
def test_damaged_traces(tmp_path: Path) -> None:
    """No traceback, whatever a trace says."""
    program, trace, place = _built(tmp_path), tmp_path / "trace", tmp_path / "all"
    _laid(program, place, [PROBE, ("enable", "--tracer", "function_graph"), WATCH])
    _run(place, trace)
    whole = trace.read_bytes()
    size = int.from_bytes(whole[12:16], "little")
    places = [*range(8, 256, 5), *range(4096, size, 97), *range(size, size + 4096, 3)]
    for at in random.Random(SEED).sample(places, scaled(300, 30)):
        held = bytearray(whole)
        held[at] ^= 0xFF
        trace.write_bytes(held)
        for name in ("function_graph", "json"):
            done = ftpatch("report", trace, "--format", name, "--no-children", "--force")
            assert done.code in (0, 2), (at, done.err)
            assert "internal error" not in done.err, (at, done.err)
