# SPDX-License-Identifier: MIT
"""Reports of probes: values against format_value(), and what people and programs read."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.probe import format_value
from ftpatch.probe.definition import TYPES
from tests.cli.test_golden import _same
from tests.support.command import ftpatch
from tests.support.probe_traces import BIAS, HIT, RETURNED, ProbeFile, Told, ip_of, string
from tests.support.sampling import scaled
from tests.support.trace_writer import BASE, STRIDE, Thread, program

NUMBERS = [kind for kind in TYPES if kind != "string"]
LOST = (1 << 64) - 1
EDGES = [0, 1, 9, 10, 99, 100, 1 << 31, 1 << 63, LOST]
WORDS = st.one_of(st.sampled_from(EDGES), st.integers(0, LOST))
QUOTED = [b"", b'"', b"\\", b"</script>", b"\xff" * 9, b"x" * 62 + "é".encode(), b"y" * 63]
TEXTS = st.one_of(
    st.binary(max_size=70),
    st.text(max_size=70).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(QUOTED),
)
ROWS = st.lists(st.tuples(WORDS, TEXTS, st.booleans()), min_size=6, max_size=6)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the output are names without a folder."""
    monkeypatch.chdir(tmp_path)


def _cut(raw: bytes) -> tuple[bytes, bool]:
    """What an event has of a string, and whether there may be more."""
    held = raw.partition(b"\0")[0][:63]
    if len(held) < 63:
        return held, False
    for size in range(63, 59, -1):
        if held[:size].decode("utf-8", "ignore").encode() == held[:size]:
            return held[:size], True
    return held, True


def _number(kind: str, text: str) -> int | float | str:
    """What JSON has instead of a text."""
    if kind in ("f32", "f64"):
        return float(text) if math.isfinite(float(text)) else text
    return int(text) if kind[0] in "us" and kind != "symbol" else text


@settings(max_examples=scaled(60, 15), deadline=None)
@given(
    st.lists(st.sampled_from([*NUMBERS, "string"]), max_size=6),
    st.lists(st.tuples(st.integers(0, 10**12), ROWS), min_size=1, max_size=8),
)
def test_values(kinds: list[str], events: list[tuple[int, list[tuple[int, bytes, bool]]]]) -> None:
    """What is printed is what format_value() says, event by event."""
    fetches = " ".join(
        f"v{n}={'+0($arg1):string' if kind == 'string' else f'+8($arg{n + 1}):{kind}'}"
        for n, kind in enumerate(kinds)
    )
    sizes = sum(8 if kind == "string" else 1 for kind in kinds)
    told = Told(f"p:seen main {fetches}", ip_of("main"), sizes + 1, faults=True)
    thread, shown, values = Thread(7, per=1), [], []
    for at, row in sorted(events, key=lambda event: event[0]):
        words: list[int] = []
        faults, line = 0, ""
        value: dict[str, object] = {}
        for n, (kind, (word, text, lost)) in enumerate(zip(kinds, row, strict=False)):
            faults |= lost << n
            if kind == "string":
                words += [LOST] * 8 if lost else string(text)
                lost = lost or words[-8] == LOST
                held, cut = _cut(text)
                line += f" v{n}=" + format_value(kind, 0, string=None if lost else held)
                line += "..." * (cut and not lost)
                value[f"v{n}"] = None if lost else held.decode("utf-8", "backslashreplace")
            else:
                words.append(word)
                one = format_value(kind, None if lost else word)
                line += f" v{n}={one}"
                value[f"v{n}"] = None if lost else _number(kind, one)
        thread.add(HIT, 0, at, faults, *words)
        stamp = f"{at // 10**9:5}.{at // 1000 % 10**6:06}"
        shown.append(f"{'prog':>16}-7       {stamp}: seen: (0x401000){line}")
        values.append(value)
    path = ProbeFile([told], [thread]).write(Path("t"))
    done = ftpatch("report", path)
    lines = [line for line in done.out.splitlines() if not line.startswith("#")]
    assert done.code == 0 and lines == shown
    rows = [row for row in ftpatch("report", path, "--json").json if "time" in row]
    assert [row["values"] for row in rows] == values
    chrome = json.loads(ftpatch("report", path, "--format", "chrome").out)["traceEvents"]
    assert len(chrome) == len(rows) + 2


def _shop() -> Path:
    """Two threads; values of all kinds, a call that two probes saw, one that is cut."""
    name = "_ZN4shop4sellEi"
    prog = program(Path("prog"), ("main", name, "parse", "walk"))
    sold = f"p:sold {name} n=$arg1:s32 to=+0($arg2):string at=$arg3:symbol"
    probes = [
        Told(sold, BASE + STRIDE, 11, faults=True),
        Told(f"r4:left {name} left=$retval:u8", BASE + STRIDE, 1, missed=3),
        Told(f"r:again {name}", BASE + STRIDE, way=1),
        Told("r:walked 0x401060 $retval", BASE + 3 * STRIDE, 1, way=3),
        Told("p:idle parse+4", BASE + 2 * STRIDE + 4, missed=1 << 40),
    ]
    caller, within = BIAS + BASE + 0x12, BIAS + BASE + 2 * STRIDE + 8
    main, other = Thread(4711), Thread(4712)
    for ms, n, text in ((1, 5, b"Ann"), (2, 1, b'\x1b[1m\xff"\n'), (3, 1, b"z" * 80)):
        at = ms * 1_000_000
        main.add(HIT, 0, at, 0, n % (1 << 32), *string(text), within)
        main.add(RETURNED, 3, at + 1000, within, 400, 0xFFFF)
        main.add(RETURNED, 2, at + 2000, caller, 2000).add(RETURNED, 1, at + 2000, caller, 2000, n)
    other.add(HIT, 0, 1_500_000, 0b110, (1 << 32) - 7, *[LOST] * 8, 0)
    other.add(RETURNED, 3, 1_600_000, BIAS + BASE + 0x2000, 50_000, 0)
    header: dict[str, int | bytes] = {"path": bytes(prog), "bias": BIAS, "comm": b"shop"}
    return ProbeFile(probes, [main, other], header).write(Path("shop.trace"))


def test_text() -> None:
    trace = _shop()
    _same("trace-probes", ftpatch("report", trace))
    _same("trace-probes-graph", ftpatch("report", "--format", "function_graph", trace))
    _same("trace-probes-profile", ftpatch("report", "--format", "profile", trace))
    _same("trace-probes-json", ftpatch("report", "--json", trace))
    narrow = ("-f", "left", "-f", "idle", "--no-demangle", "--time", "0.0015-")
    folded = ftpatch("report", "--format", "folded", trace, "-D", "1")
    _same("trace-probes-narrow", ftpatch("report", trace, *narrow), folded)


def _hits(trace: Path, *words: str) -> list[tuple[int, str]]:
    """Thread and probe of each hit that is shown, in order."""
    rows = ftpatch("report", "--json", trace, *words).json
    return sorted((row["tid"], row["probe"]) for row in rows if "time" in row)


def test_calls_that_are_selected() -> None:
    """What r probes saw are calls, with the hits of other probes inside them."""
    trace = _shop()
    walks = [(4711, "walked")] * 3
    assert _hits(trace, "-F", "walk") == [*walks, (4712, "walked")]
    sell = [(4711, name) for name in ("again", "left", "sold") for _ in range(3)]
    assert _hits(trace, "-F", "shop::sell") == [*sell, *walks, (4712, "sold")]
    assert _hits(trace, "-F", "shop::sell", "-D", "1") == [*sell, (4712, "sold")]
    assert _hits(trace, "-t", "1us") == [*[(4711, "left")] * 3, (4712, "walked")]
    folded = ftpatch("report", "--format", "folded", trace, "-F", "walk").out
    assert folded == "walk 51200\n"
    wrong = ftpatch("report", trace, "-F", "shop::sel")
    assert wrong.code == 2 and "did you mean shop::sell" in wrong.err


def test_names() -> None:
    trace = _shop()
    out = ftpatch("report", trace).out
    assert "(main+0x12/0x20 <- shop::sell(int)) left=5 /* 2.000 us */" in out
    assert "at=parse+0x8/0x20" in out and "(parse+0x8/0x20 <- walk)" in out
    plain = ftpatch("report", trace, "--no-demangle").out
    assert "<- _ZN4shop4sellEi)" in plain and "shop::sell" not in plain
    Path("prog").unlink()
    gone = ftpatch("report", trace)
    assert gone.code == 0 and gone.err.count("\n") == 1 and "addresses instead of names" in gone.err
    assert "(prog+0x401012 <- shop::sell(int))" in gone.out and "at=prog+0x401048" in gone.out
    assert "(prog+0x403000 <- prog+0x401060)" in gone.out
    program(Path("other"))
    Path("other").rename("prog")
    raw = bytearray(trace.read_bytes())
    raw[184:216] = b"x" * 32
    trace.write_bytes(raw)
    changed = ftpatch("report", trace)
    assert (changed.code, changed.out) == (2, "")
    assert changed.err == (
        "ftpatch: shop.trace: not a trace of prog, or the image was changed since; "
        "use --image with the right one, or --force\n"
    )


def test_options() -> None:
    trace = _shop()
    refused = ftpatch("report", "--format", "function", trace)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "ftpatch: shop.trace: probe events cannot be reported as function; use probes, "
        "function_graph, histogram, profile, chrome, flamegraph, folded, html, json, perfetto, "
        "pprof or uftrace\n"
    )
    only = ProbeFile([Told("p:one main", BASE)], [Thread(1).add(HIT, 0, 5)]).write(Path("p"))
    for form in ("function_graph", "folded", "flamegraph", "html"):
        done = ftpatch("report", "--format", form, only)
        assert done.code == 2 and "there are no r probes" in done.err, done.err
        assert "use probes, profile, chrome, json or perfetto" in done.err
    assert ftpatch("report", only, "--format", "profile").out.splitlines()[-1].split() == [
        *("1", "0", "jump", "-", "-", "-", "-", "one:", "main"),
    ]
    deep = ftpatch("report", trace, "-D", "1", "--json").json
    names = [row["probe"] for row in deep if "time" in row]
    assert names.count("left") == 3 and names.count("walked") == 1 and "again" not in names
    missing = ftpatch("report", trace, "-f", "nothing")
    said = "filter 'nothing' matches no function or probe in the trace\n"
    assert missing.code == 2 and missing.err.endswith(said)
    near = ftpatch("report", trace, "-f", "wlaked")
    assert near.err.endswith("no function or probe in the trace; did you mean walked or walk?\n")
    few = ftpatch("report", only, "-f", "nothing")
    assert few.err.endswith("no function or probe in the trace; use one or main\n")
    source = ftpatch("report", trace, "--source")
    assert source.code == 0 and "no debug information" in source.err
    rows = ftpatch("report", trace, "-f", "walk", "--json").json
    assert {row["probe"] for row in rows} == {"walked"}


@pytest.mark.skipif(shutil.which("uftrace") is None, reason="uftrace is not installed")
def test_uftrace() -> None:
    """Calls that r probes saw are calls to uftrace."""
    trace = _shop()
    done = ftpatch("report", "--format", "uftrace", trace, "-o", "folder")
    assert done.code == 0 and "because they are no calls: 7" in done.err
    words = ["uftrace", "replay", "--no-pager", "--color=no", "--demangle=full", "-d", "folder"]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = [line.partition("]")[2] for line in told.stdout.splitlines()[1:]]
    sell = [" | shop::sell(int) {", " |   walk();", " | } /* shop::sell(int) */"]
    assert lines == [*sell, " | walk();", *sell, *sell] and not told.stderr


@pytest.mark.skipif(shutil.which("go") is None, reason="golang-go is not installed")
def test_pprof() -> None:
    trace = _shop()
    assert ftpatch("report", "--format", "pprof", trace, "-o", "out").code == 0
    words = ["go", "tool", "pprof", "-traces", "-unit=ns", "-sample_index=time", "out"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    stacks = [part.split() for part in re.split(r"-+\+-+", told)[1:-1]]
    assert stacks == [
        ["4800ns", "shop::sell(int)"],
        ["1200ns", "walk", "shop::sell(int)"],
        ["50000ns", "walk"],
    ]


def test_perfetto() -> None:
    """Every event, with its values, as the schema of Perfetto's makers reads it."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets

    trace = _shop()
    assert ftpatch("report", "--format", "perfetto", trace, "-o", "out").code == 0
    packets: Any = Packets()
    packets.ParseFromString(Path("out").read_bytes())
    strings: dict[int, str] = {}
    names: dict[int, str] = {}
    events = []
    for packet in packets.packet:
        interned = packet.interned_data
        strings |= {one.iid: one.str.decode() for one in interned.debug_annotation_string_values}
        names |= {one.iid: one.name for one in interned.event_names}
        if packet.HasField("track_event"):
            event, values = packet.track_event, {}
            for note in event.debug_annotations:
                field = note.WhichOneof("value")
                value = getattr(note, field)
                values[note.name] = strings[value] if field == "string_value_iid" else value
            kind = event.Type.Name(event.type).removeprefix("TYPE_")
            events.append((kind, names[event.name_iid], packet.timestamp, values))
    assert len(events) == 4 + 3 + 2 * (3 + 4)
    first = {"n": 5, "to": "Ann", "at": "parse+0x8/0x20"}
    assert ("INSTANT", "sold", 1_000_000, first) in events
    lost = {"n": -7 % (1 << 32) - (1 << 32), "to": "(fault)", "at": "(fault)"}
    assert ("INSTANT", "sold", 1_500_000, lost) in events
    assert ("SLICE_END", "left", 1_002_000, {"caller": "main+0x12/0x20", "left": 5}) in events
    cut = [values["to"] for _, name, _, values in events if name == "sold"]
    assert "z" * 63 + "..." in cut and '\x1b[1m\\xff"\n' in cut


BROKEN = [
    ("p:a main x=$arg1", 0, "probe 0 does not match its definition"),
    ("p:a main +0($arg1):string", 9, "probe 0 does not match its definition"),
    ("p:a main x=$arg9000", 1, "probe 0: "),
    ("z:a main", 0, "probe 0: "),
]


@pytest.mark.parametrize(("text", "words", "said"), BROKEN)
def test_broken_headers(text: str, words: int, said: str) -> None:
    told = Told(text, BASE, words)
    done = ftpatch("report", ProbeFile([told], [Thread(1).add(HIT, 0, 5)]).write(Path("t")))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"ftpatch: t: {said}") and done.err.count("\n") == 1, done.err


def test_broken_events() -> None:
    """What cannot be right is left out, and counted; what stands before it is told."""
    probes = [Told("p:a main", BASE), Told("r:b main", BASE)]
    thread = Thread(1).add(HIT, 0, 1).add(HIT, 1, 2).add(HIT, 77, 3).add(6, 0, 4).add(HIT, 0, 5)
    path = ProbeFile(probes, [thread]).write(Path("t"))
    done = ftpatch("report", path, "--json")
    assert done.code == 0 and done.json[0]["probe"] == "a" and done.json[0]["time"] == 1
    assert done.err == "ftpatch: chunks without a valid last event: 1\n"
    raw = path.read_bytes()
    for size, code in ((3, 2), (100, 2), (4100, 2), (len(raw) - 4090, 0), (0, 2)):
        path.write_bytes(raw[:size])
        cut = ftpatch("report", path)
        assert cut.code == code and "internal" not in cut.err, cut.err
        assert cut.err.count("\n") == (code > 0), cut.err
    path.write_bytes(raw[:4096].replace(b"FTPTRACE", b"\x7fELF\2\1\1\0"))
    assert ftpatch("report", path).err.startswith(
        "ftpatch: t: not a trace file; use a file that a "
    )


def test_a_million_events_take_seconds() -> None:
    """Processor time: an object for each event took 10 us of it."""
    thread = Thread(1)
    for n in range(150_000):
        thread.add(HIT, 0, 20 * n, n, n * n).add(RETURNED, 1, 20 * n + 9, BIAS + BASE, 5, n)
    probes = [Told("p:a main x=$arg1:s32 y=$arg2", BASE, 2), Told("r:b main $retval:u64", BASE, 1)]
    path = ProbeFile(probes, [thread], {"bias": BIAS}, chunk_size=1 << 14).write(Path("t"))
    for form in ("probes", "json", "chrome", "profile"):
        before = time.process_time()
        done = ftpatch("report", "--format", form, path, "-o", f"{form}.out")
        took = time.process_time() - before
        assert done.code == 0 and took < 1.5, f"{form}: {took:.2f} s"
    assert Path("probes.out").read_text().count("\n") == 300_000 + 8
