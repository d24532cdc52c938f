# SPDX-License-Identifier: MIT
"""Each view and key of `report --tui`, with numbers of a naive reading."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from ftpatch.cli.tui.recorded import Stopped
from ftpatch.errors import InputError
from tests.support.boot_small import STACKS, enabled, stream
from tests.support.probe_traces import BIAS, HIT, RETURNED, ProbeFile, Told, ip_of
from tests.support.trace_naive import sums
from tests.support.trace_writer import (
    BASE,
    ENTRY,
    EXIT,
    FUNCTION,
    FUNCTIONS,
    LEFT,
    Thread,
    TraceFile,
    program,
    site,
)
from tests.support.walks import Screen, opened, walked
from tests.trace.test_trace_graph_of import _calls, _naive

NUMBERS = re.compile(r" *([\d.]+) us +([\d.]+) us +([\d.]+) us +")
NODE = re.compile(r" *([\d.]+) us +(\d+) +[\d.]+% .{8} ( *)[▾▸ ] (\S+)")
SIZE = (80, 24)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _threads() -> list[Thread]:
    """main calls walk, which calls itself and hash; parse calls walk, too; another thread."""
    one = Thread(7, per=5).add(ENTRY, "main", 0).add(ENTRY, "walk", 100).add(ENTRY, "walk", 200)
    one.add(ENTRY, "hash", 300).add(EXIT, "hash", 400).add(EXIT, "walk", 500)
    one.add(ENTRY, "hash", 600).add(EXIT, "hash", 900).add(EXIT, "walk", 1000)
    one.add(ENTRY, "parse", 1100).add(ENTRY, "walk", 1200).add(EXIT, "walk", 5000)
    one.add(EXIT, "parse", 6000).add(EXIT, "main", 7000)
    two = Thread(9).add(ENTRY, "alloc", 50).add(ENTRY, "hash", 60).add(EXIT, "hash", 75)
    two.add(ENTRY, "fail", 6100).add(ENTRY, "hash", 6200).add(LEFT, 2, 6300)
    two.add(ENTRY, "print_all", 6400).add(EXIT, "print_all", 6500)  # alloc stays open
    return [one, two]


def _trace(threads: Sequence[Thread] = (), **header: int | bytes) -> Path:
    own: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    file = TraceFile(list(threads) or _threads(), header=own | header)
    return file.write(Path("prog.trace"))


def _ns(text: str) -> int:
    return round(float(text) * 1000)


def _row(line: str) -> tuple[int, int, int, int, str]:
    """Hits, total, self and average time, and name of a line."""
    hits, own, total, average, name = line.replace(" us", "").split()
    return int(hits), _ns(total), _ns(own), _ns(average), name


def test_functions() -> None:
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for thread in _threads():
        for func, one in sums(thread.events)[0].items():
            sum_ = expected[FUNCTIONS[(func - 5) // 0x20]]
            sum_[:] = [sum_[0] + one.hits, sum_[1] + one.total, sum_[2] + one.own]
    columns = {"Self": 2, "Total": 1, "Avg": 3, "Calls": 0, "Name": 4}

    async def script(screen: Screen) -> None:
        for column in ("Self", "Total", "Avg", "Calls", "Name", "Self"):
            rows = [_row(line) for line in screen.every()]
            assert {row[4]: [*row[:3]] for row in rows} == expected
            inner = {"walk": 300}  # in walk, which is part of the total, but a call of the average
            assert all(row[3] == (row[1] + inner.get(row[4], 0)) // row[0] for row in rows)
            place = columns[column]
            assert rows == sorted(rows, key=lambda row: row[place], reverse=column != "Name")
            (head,) = screen.listing().table.heads(80)
            assert ("Function" if column == "Name" else column) + ("▲▼"[column != "Name"]) in head
            cursor = screen.at_cursor().split()[-1]
            await screen.press("O")
            assert [line.split()[-1] for line in screen.every()] != [row[4] for row in rows]
            assert screen.at_cursor().split()[-1] == cursor
            await screen.press("O", "o")
        assert screen.title == "Functions | prog.trace: 12 calls, 2 threads"

    with opened(_trace()) as held:
        walked(script, held)


async def _unfold(screen: Screen, name: str) -> None:
    """Everything, by its keys."""
    listing = screen.listing(name)
    listing.focus()
    await screen.press("home")
    while True:
        await screen.press("right")
        if listing.cursor == len(listing.table) - 1:
            return
        await screen.press("down")


def _ways(
    lines: Sequence[str], *, outwards: bool = False
) -> dict[tuple[str, ...], tuple[int, int]]:
    found, way = {}, list[str]()
    for line in lines:
        row = NODE.fullmatch(line)
        assert row, line
        way[len(row[3]) // 2 :] = [row[4]]
        assert tuple(way) not in found
        found[tuple(way)] = int(row[2]), _ns(row[1])
    return found


@pytest.mark.parametrize("function", ["walk", "hash", "main", "fail"])
def test_callers_and_callees(function: str) -> None:
    expected = _naive_ways(function)

    async def script(screen: Screen) -> None:
        await screen.press("slash")
        await screen.write(function)
        assert screen.at_cursor().endswith(f" {function}")
        await screen.press("c")
        assert screen.view == "around"
        for name, ways in zip(("callers", "callees"), expected, strict=True):
            await _unfold(screen, name)
            assert _ways(screen.every(name)) == ways
            what = f"{name.capitalize()} of {function}"
            assert screen.listing(name).table.heads(80)[0] == what

    with opened(_trace()) as held:
        walked(script, held)


def _naive_ways(function: str) -> tuple[dict[tuple[str, ...], tuple[int, int]], ...]:
    """_naive() knows returns alone: a call that was left ends there."""
    return _naive(_returning(), function)


def _returning() -> list[Thread]:
    """The same threads, with exits where calls were left or stayed open."""
    one, two = _threads()
    events: list[tuple[int, ...]] = []
    for kind, func, time in two.events:
        if kind == LEFT:
            events += [(EXIT, site("hash"), time), (EXIT, site("fail"), time)]
        else:
            events.append((kind, func, time))
    return [one, Thread(9, events)]


def test_call_tree() -> None:
    expected: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for thread in _returning():
        for stack, spent in _calls(thread.events):
            expected[tuple(stack)][0] += 1
            expected[tuple(stack)][1] += spent

    async def script(screen: Screen) -> None:
        await screen.press("t")
        assert [line.split()[-1] for line in screen.every()] == ["main", "alloc"]
        shares = [re.findall(r"([\d.]+)%", line)[0] for line in screen.every()]
        assert shares == ["52.0", "48.0"], "7000 and 6450 of 13450"
        assert screen.every()[0].count("█") == 4, "of eight"
        await _unfold(screen, "tree")
        assert _ways(screen.every()) == {way: tuple(both) for way, both in expected.items()}
        await screen.press("home", "left")
        assert [line.split()[-1] for line in screen.every()][:2] == ["main", "alloc"]
        await screen.press("enter")
        assert len(screen.every()) > 5
        await screen.press("down", "left")
        assert screen.at_cursor().split()[-1] == "main", "from a folded line to the one around it"

    with opened(_trace()) as held:
        walked(script, held)


def test_walking_up_and_down() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("slash")
        await screen.write("hash")
        await screen.press("enter")
        heads = [screen.listing("callers").table.heads(80)[0]]
        for keys in (
            ["down", "enter"],
            ["tab", "down", "down", "enter"],
            ["backspace"],
            ["backspace"],
        ):
            await screen.press(*keys)
            heads.append(screen.listing("callers").table.heads(80)[0])
        first, up, down, *back = (head.removeprefix("Callers of ") for head in heads)
        assert (first, back) == ("hash", [up, "hash"])
        assert up in ("walk", "alloc", "fail") and down != up
        await screen.press("backspace")
        assert screen.view == "functions"

    with opened(_trace()) as held:
        walked(script, held)


def test_time_line() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("o", "home", "l")  # of the function that took longest
        assert (
            screen.listing().table.heads(80)[0]
            == "thread 7 (prog, pid 100), 1 of 2; [ and ] show others"
        )
        rows = [line.split() for line in screen.every()]
        assert [(row[0], row[1], row[3], row[4]) for row in rows] == [
            ("0.000000000", "7.000", "0", "main"),
            ("0.000000100", "0.900", "1", "walk"),
            ("0.000000200", "0.300", "2", "walk"),
            ("0.000000300", "0.100", "3", "hash"),
            ("0.000000600", "0.300", "2", "hash"),
            ("0.000001100", "4.900", "1", "parse"),
            ("0.000001200", "3.800", "2", "walk"),
        ]
        await screen.press("g")
        await screen.write("0.00000070")
        assert screen.at_cursor().split()[0] == "0.000000600"
        await screen.press("right_square_bracket")
        assert (
            screen.listing().table.heads(80)[0]
            == "thread 9 (prog, pid 100), 2 of 2; [ and ] show others"
        )
        assert screen.at_cursor().split()[0] == "0.000000060", "what ran there then"
        ends = {line.split()[-1]: line.split()[2] for line in screen.every()}
        assert ends == {"alloc": "us+", "hash": "us!", "fail": "us!", "print_all": "us"}
        await screen.press("left_square_bracket", "g")
        await screen.write("soon")
        assert screen.detail == "'soon' is not a number of seconds"
        await screen.press("end", "enter")
        assert screen.listing("callers").table.heads(80)[0] == "Callers of walk"

    with opened(_trace()) as held:
        walked(script, held)


def test_the_time_line_begins_at_the_longest_call() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("slash")
        await screen.write("walk")
        await screen.press("l")
        assert screen.at_cursor().split()[0] == "0.000001200"
        begins = []
        for key in "nnnNN":
            await screen.press(key)
            begins.append(screen.at_cursor().split()[0][-4:])
        assert begins == ["0100", "0200", "1200", "0200", "0100"]

    with opened(_trace()) as held:
        walked(script, held)


def test_search() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("n")
        assert "nothing to look for yet" in screen.detail
        await screen.press("slash")
        await screen.write("A*")
        assert "no function matches 'A*'" in screen.detail
        await screen.press("slash")
        await screen.write("[ph]a*")
        found = [screen.at_cursor().split()[-1]]
        for _ in range(2):
            await screen.press("n")
            found.append(screen.at_cursor().split()[-1])
        assert found == ["parse", "hash", "parse"], "behind the last the first"
        await screen.press("t", "n")
        assert screen.at_cursor().split()[-1] in ("hash", "parse"), "in what was folded"
        assert len(screen.every()) > 2
        await screen.press("slash", "x", "escape")
        assert screen.app.focused is screen.listing("tree")

    with opened(_trace()) as held:
        walked(script, held)


def test_help_has_every_key() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("question_mark")
        text = "\n".join(screen.every())
        for binding in screen.app.BINDINGS:
            key = binding.key_display or binding.key  # type: ignore[union-attr]
            shown = {
                "right": "Right",
                "left": "Left",
                "backspace": "Backspace",
                "escape": "Esc",
                "left_square_bracket": "[",
                "right_square_bracket": "]",
            }
            if not key.startswith("ctrl+"):
                for part in key.split():
                    name = shown.get(part, part)
                    assert re.search(rf"(^|\W){re.escape(name)}(\W|$)", text), key
        assert all(len(line) <= 80 for line in screen.every())

    with opened(_trace()) as held:
        walked(script, held)


def test_q_ends_it() -> None:
    async def script(screen: Screen) -> None:
        await screen._pilot.press("q")

    with opened(_trace()) as held:
        assert walked(script, held).return_value == 0


def test_a_reading_that_nobody_waits_for_ends() -> None:
    with opened(_trace()) as held:
        held.stop()
        for read in (held.call_tree, held.time_line, lambda: held.around(0)):
            with pytest.raises(Stopped):
                read()


def test_an_error_is_told() -> None:
    """Here of a file that went away."""
    trace = _trace()

    async def script(screen: Screen) -> None:
        gone = InputError(trace, "cannot read: \x1b[31m")
        with mock.patch.object(type(held.source), "rows", side_effect=gone):
            await screen.press("t")
        assert screen.lines()[0] == "prog.trace: cannot read: \\x1b[31m"
        await screen.press("f", "t")
        assert screen.at_cursor().endswith(" main"), "it is tried again"

    with opened(trace) as held:
        walked(script, held)


def test_clicks() -> None:
    """One goes to a line, two walk to its function."""

    async def script(screen: Screen) -> None:
        await screen.click("#functions", 3)
        assert screen.listing().cursor == 2
        wanted = screen.at_cursor().split()[-1]
        await screen.click("#functions", 0, times=2)
        assert (screen.view, screen.listing().cursor) == ("functions", 2), "the names of columns"
        await screen.click("#functions", 3, times=2)
        assert screen.listing("callers").table.heads(80)[0] == f"Callers of {wanted}"

    with opened(_trace()) as held:
        walked(script, held)


@pytest.mark.parametrize("size", [(80, 24), (40, 8), (20, 3), (200, 60)])
def test_any_size(size: tuple[int, int]) -> None:
    async def script(screen: Screen) -> None:
        for key in ("t", "c", "l", "s", "question_mark", "f"):
            await screen.press(key, "end", "home", "pagedown")
            for line in screen.lines("callers" if screen.view == "around" else ""):
                assert len(line) <= size[0]
        await screen.resize(30, 10)
        assert screen.at_cursor().split()[-1][:5] in "".join(screen.lines())
        await screen.resize(*size)

    with opened(_trace()) as held:
        walked(script, held, size)


def test_the_cursor_stays_in_sight() -> None:
    thread, time = Thread(1), 0
    for number in range(500):
        time += 10
        thread.add(ENTRY, FUNCTIONS[number % 8], time).add(EXIT, FUNCTIONS[number % 8], time + 5)

    async def script(screen: Screen) -> None:
        await screen.press("l", "home")
        for keys in (["down"] * 30, ["pagedown"] * 3, ["end"], ["up"] * 25, ["pageup"], ["home"]):
            await screen.press(*keys)
            seen = [line.rstrip() for line in screen.lines()]
            assert screen.every(width=80)[screen.listing().cursor] in seen
        assert screen.listing().cursor == 0

    with opened(_trace([thread])) as held:
        walked(script, held)


def test_names_are_only_text() -> None:
    """Neither escape sequences, nor what rich and textual take for markup."""
    names = (
        "a\x1b[31mb",
        "[red]bold[/red]",
        "[@click=app.quit]x[/]",
        *("rest" + c for c in "abcde"),
    )
    thread = Thread(1).add(ENTRY, "main", 0).add(ENTRY, "parse", 1).add(ENTRY, "read_line", 2)
    for name, time in (("read_line", 3), ("parse", 4), ("main", 9)):
        thread.add(EXIT, name, time)
    header = {"path": bytes(program(Path("odd"), names)), "comm": b"\x1b[red]\xff"}
    trace = TraceFile([thread], header=header).write(Path("[b]trace"))  # type: ignore[arg-type]

    async def script(screen: Screen) -> None:
        for key in ("f", "t", "l", "s", "c"):
            await screen.press(key, "down", "up")
            listing = "callers" if screen.view == "around" else ""
            drawn = "\n".join([*screen.lines(listing), screen.detail, screen.title])
            assert "\x1b" not in drawn and "[b]trace" in drawn
            assert "a\\x1b[31mb" in drawn
        await screen.press("f", "end")
        shown = [line.split()[-1] for line in screen.every()]
        assert sorted(shown) == ["[@click=app.quit]x[/]", "[red]bold[/red]", "a\\x1b[31mb"]
        assert screen.detail in shown

    with opened(trace) as held:
        walked(script, held)


def test_an_empty_recording() -> None:
    async def script(screen: Screen) -> None:
        for key in ("f", "t", "l", "c", "s", "n", "o", "O", "left", "right", "enter", "end"):
            await screen.press(key)
        await screen.press("f")
        assert "No calls were recorded." in screen.lines()[1]
        await screen.press("t")
        assert "No calls were recorded." in screen.lines()
        await screen.press("l", "g")
        await screen.write("1")
        assert "No calls were recorded." in screen.lines()

    with opened(TraceFile([]).write(Path("empty"))) as held:
        walked(script, held)


def test_a_damaged_recording() -> None:
    trace = _trace(lost0=0)
    raw = bytearray(trace.read_bytes())
    raw[4096 + 4096 : 4096 + 4096 + 32] = b"\xff" * 32
    trace.write_bytes(raw)

    async def script(screen: Screen) -> None:
        assert "corrupt chunk" in screen.detail or "chunk" in screen.detail
        await screen.press("question_mark")
        assert "chunk" in screen.every()[0]
        for key in ("t", "l", "f", "c"):
            await screen.press(key)
            assert screen.lines("callers" if key == "c" else "")

    with opened(trace) as held:
        walked(script, held)


def test_a_profile_has_functions_alone() -> None:
    entries = [(site("walk"), 2, 5000, 4000), (site("hash"), 7, 1000, 1000)]
    path = bytes(program(Path("prog")))
    trace = TraceFile(profiles=[entries], header={"path": path}).write(Path("profile"))

    async def script(screen: Screen) -> None:
        rows = [re.sub(" us", "", line).split() for line in screen.every()]
        assert rows == [
            ["2", "4.000", "5.000", "2.500", "walk"],
            ["7", "1.000", "1.000", "0.142", "hash"],
        ]
        for key, name in (("t", "tree"), ("l", "time"), ("c", "callers")):
            await screen.press("f", key)
            assert "a profile has sums" in screen.listing(name).table.message

    with opened(trace) as held:
        walked(script, held)


def test_calls_without_returns() -> None:
    thread = Thread(7)
    for number in range(5):
        thread.add(ENTRY, FUNCTIONS[number % 2], number * 10)

    async def script(screen: Screen) -> None:
        assert [line.split() for line in screen.every()] == [["3", "main"], ["2", "parse"]]
        await screen.press("l")
        assert [line.split()[-1] for line in screen.every()] == [*FUNCTIONS[:2] * 2, "main"]
        await screen.press("t")
        assert "does not record returns" in "".join(screen.lines())

    with opened(_trace([thread], tracer=FUNCTION)) as held:
        walked(script, held)


def test_several_processes() -> None:
    child = Thread(200).add(ENTRY, "walk", 2100).add(EXIT, "walk", 2200)
    header: dict[str, int | bytes] = {"pid": 200, "ppid": 100, "comm": b"child"}
    header["path"] = bytes(program(Path("prog")))
    second = TraceFile([child], header=header).write(Path("prog.trace.200"))

    async def script(screen: Screen) -> None:
        assert screen.title == "Functions | prog.trace and 1 more: 13 calls, 3 threads"
        await screen.press("o", "home", "l", "left_square_bracket")
        assert (
            screen.listing().table.heads(80)[0]
            == "thread 200 (child, pid 200), 3 of 3; [ and ] show others"
        )
        assert len(screen.every()) == 1

    with opened(_trace(), second) as held:
        walked(script, held)


def test_calls_of_probes() -> None:
    """Those that r probes saw; hits of p probes are no calls."""
    probes = [Told("r:back walk", ip_of("walk")), Told("p:there walk", ip_of("walk"))]
    thread = Thread(7)
    thread.add(HIT, 1, 1000).add(RETURNED, 0, 4000, BIAS, 1000)
    thread.add(RETURNED, 0, 9000, BIAS, 3000)
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    trace = ProbeFile(probes, [thread], header).write(Path("hits"))

    async def script(screen: Screen) -> None:
        assert [line.split()[-1] for line in screen.every()] == ["walk"]
        assert screen.every()[0].split()[0] == "2"
        await screen.press("l")
        assert len(screen.every()) == 2

    with opened(trace) as held:
        walked(script, held)


def test_a_kernel_that_boots() -> None:
    one, two = STACKS
    image = enabled(Path().absolute())
    path = Path("stream")
    events = [("ksys_dup3", one - 8), ("vfs_read", one - 64), ("schedule", one - 128)]
    path.write_bytes(stream(image, [*events, ("do_exit", two - 8), ("vfs_read", two - 80)]))

    async def script(screen: Screen) -> None:
        calls = {line.split()[-1]: line.split()[0] for line in screen.every()}
        assert calls == {"ksys_dup3": "1", "vfs_read": "2", "schedule": "1", "do_exit": "1"}
        assert not any(" us" in line for line in screen.every())
        assert "event numbers" in screen.detail
        await screen.press("l", "home")
        assert screen.listing().table.heads(80)[0].startswith("thread 1 (kernel)")
        assert [line.split()[2] for line in screen.every()] == ["0", "1", "2"]

    with opened(path, image=image) as held:
        walked(script, held)


SOURCE = """\
#include <stdio.h>

static int twice(int n)
{
\tint out = n;

\tout += n;
\treturn out;
}

int main(void)
{
\treturn twice(21) != 42;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_source() -> None:
    source = Path("twice.c")
    source.write_text(SOURCE)
    words = ["gcc", "-g", "-O0", "-no-pie", "-fcf-protection=none", str(source), "-o", "twice"]
    subprocess.run(words, check=True)
    told = subprocess.run(["nm", "twice"], capture_output=True, text=True, check=True).stdout
    starts = {name: int(at, 16) for at, _, name in re.findall(r"(\w+) ([tT]) (main|twice)\n", told)}
    low = min(starts.values()) & ~0xFFF
    thread = Thread(7)
    for number, name in enumerate(("main", "twice")):
        thread.add(ENTRY, starts[name] - low + 5, number * 10)
    for number, name in enumerate(("twice", "main")):
        thread.add(EXIT, starts[name] - low + 5, 20 + number)
    header: dict[str, int | bytes] = {"path": bytes(Path("twice").absolute()), "base": low}
    trace = TraceFile([thread], header=header).write(Path("trace"))
    lines = [["addr2line", "-e", "twice", hex(at)] for at in range(starts["twice"], starts["main"])]
    found = {subprocess.check_output(line, text=True).split(":")[1].split()[0] for line in lines}
    assert len(found) > 3

    async def script(screen: Screen) -> None:
        await screen.press("slash")
        await screen.write("twice")
        await screen.press("s")
        (head,) = screen.listing().table.heads(200)
        assert head == f"twice: {source.absolute()}"
        every = screen.every()
        assert [line[9:].rstrip() for line in every] == [
            line.expandtabs(8) for line in SOURCE.split("\n")
        ]
        own = {line.split()[0] for line in every if "▌" in line}
        assert own == found
        assert screen.at_cursor().split()[0] == str(min(map(int, found)))
        await screen.press("f")
        assert screen.at_cursor().endswith(" twice")

    with opened(trace) as held:
        walked(script, held)
    source.unlink()

    async def without(screen: Screen) -> None:
        await screen.press("s")
        assert "twice.c:" in screen.listing().table.message
        assert "No such file" in screen.listing().table.message

    with opened(trace) as held:
        walked(without, held)


def test_source_without_line_information() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("s")
        assert "no debug information; compile it with -g" in screen.listing().table.message

    async def unknown(screen: Screen) -> None:
        await screen.press("s")
        assert "the program is not known: name it with --image" in "".join(screen.lines())

    with opened(_trace()) as held:
        walked(script, held)
    assert BASE
    with opened(_trace(path=b"")) as held:
        walked(unknown, held)
