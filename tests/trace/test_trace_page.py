# SPDX-License-Identifier: MIT
"""HTML reports as a browser shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import Browser, browser, needs_browser, write_page
from tests.support.probe_traces import BIAS, RETURNED, ProbeFile, Told, ip_of
from tests.support.trace_naive import sums
from tests.support.trace_writer import ENTRY, EXIT, STRIDE, Thread, TraceFile, program, site

pytestmark = needs_browser

LONG = "shop::Cart<std::string, std::allocator<std::string> >::add(int)"
NAMES = ("main", LONG, "read_line", "walk", "alloc", "hash", "print_all", "fail")
EVIL = (
    "main",
    "</script><img src=x onerror=document.title='evil'>",
    "<img src=x onerror=document.title='evil'>",
    "' onmouseover='document.title=1",
    "javascript:document.title='evil'",
    "a&amp;b;c%3Bd~2",
    "__proto__",
    "constructor",
)


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture
def page(started: Browser) -> Iterator[Browser]:
    """A browser that does not complain, and shows nothing but the file."""
    started.errors()
    yield started
    assert started.errors() == []
    loaded = started.run("performance.getEntriesByType('resource').map(one => one.name)")
    assert loaded == []


def _thread() -> Thread:
    """main calls all others, walk on two ways."""
    thread = Thread(11).add(ENTRY, "main", 0).add(ENTRY, "parse", 1000)
    for begin in range(2000, 60_000, 10_000):
        thread.add(ENTRY, "read_line", begin).add(ENTRY, "walk", begin + 1000)
        thread.add(EXIT, "walk", begin + 4000).add(EXIT, "read_line", begin + 9000)
    thread.add(EXIT, "parse", 70_000).add(ENTRY, "walk", 71_000).add(ENTRY, "alloc", 72_000)
    thread.add(EXIT, "alloc", 79_000).add(EXIT, "walk", 90_000).add(ENTRY, "hash", 91_000)
    return thread.add(EXIT, "hash", 92_500).add(EXIT, "main", 100_000)


def _trace(tmp_path: Path, names: tuple[str, ...] = NAMES, **header: int | bytes) -> Path:
    header["path"] = bytes(program(tmp_path / "prog", names))
    other = Thread(12).add(ENTRY, "walk", 20_000).add(EXIT, "walk", 30_000)
    return TraceFile([_thread(), other], header=header).write(tmp_path / "trace")


def _table(page: Browser) -> list[list[str]]:
    rows: list[list[str]] = page.run(
        "[...document.querySelectorAll('#rows tr')].map(row => "
        "[...row.cells].map(cell => cell.textContent))"
    )
    return rows


def test_the_table_sorts(page: Browser, tmp_path: Path) -> None:
    page.open(write_page(_trace(tmp_path)))
    page.click("#tab-table")
    expected: dict[str, list[int]] = {}
    for thread in (_thread(), Thread(12).add(ENTRY, "walk", 20_000).add(EXIT, "walk", 30_000)):
        for func, sum_ in sums(thread.events)[0].items():
            row = expected.setdefault(NAMES[func // STRIDE], [0, 0, 0])
            row[:] = [a + b for a, b in zip(row, (sum_.hits, sum_.total, sum_.own), strict=True)]
    label = {name: name for name in NAMES} | {LONG: "shop::Cart<…>::add(int)"}

    def by(column: int, up: bool = False) -> list[str]:
        rows = sorted(expected, key=lambda name: expected[name][column], reverse=not up)
        return [label[name] for name in rows]

    def shown() -> list[str]:
        return [row[-1] for row in _table(page)]

    assert shown() == by(1)
    for key, column in (("calls", 0), ("own", 2)):
        page.click(f"th[data-key={key}] button")
        values = [expected[next(n for n in NAMES if label[n] == name)][column] for name in shown()]
        assert values == sorted(values, reverse=True)
        assert page.run(f"document.querySelector('th[data-key={key}]').ariaSort") == "descending"
        page.click(f"th[data-key={key}] button")
        assert shown()[0] == by(column, up=True)[0]
        assert page.run(f"document.querySelector('th[data-key={key}]').ariaSort") == "ascending"
    assert page.run("document.querySelectorAll('th[aria-sort]').length") == 1
    page.click("th[data-key=name] button")
    assert shown() == [label[name] for name in sorted(expected)]
    walk = next(row for row in _table(page) if row[-1] == "walk")
    assert walk[:-1] == ["8", "47.000 us", "40.000 us", "3.000 us", "5.875 us", "19.000 us"]


def test_times_of_the_table_have_one_unit(page: Browser, tmp_path: Path) -> None:
    """As ftrace's: what stands below each other is compared."""
    thread = Thread(11).add(ENTRY, "main", 0).add(ENTRY, "walk", 1000).add(EXIT, "walk", 1040)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog", NAMES))}
    file = TraceFile([thread.add(EXIT, "main", 1_234_567_890)], header=header)
    page.open(write_page(file.write(tmp_path / "trace")))
    page.click("#tab-table")
    assert [row[:3] for row in _table(page)] == [
        ["1", "1,234,567.890 us", "1,234,567.850 us"],
        ["1", "0.040 us", "0.040 us"],
    ]


def test_search_counts_and_marks(page: Browser, tmp_path: Path) -> None:
    page.open(write_page(_trace(tmp_path)))
    page.press("/")
    assert page.focused == "search"
    page.press("wal")
    # 6 times 3 us within read_line, 19 us in main, 10 us in the other thread; of 110 us.
    assert page.text("#matched") == "1 of 6 functions, 47.000 us (42.73%)"
    assert set(page.boxes(".found")) == {"walk"} and len(page.boxes(".found")) == 3
    page.click("#tab-table")
    assert [row[-1] for row in _table(page)] == ["walk"] and page.texts("mark") == ["wal"]
    page.driver.find_element("id", "search").clear()
    page.click("#search")
    page.press("allocator")  # in what the label leaves out
    assert page.texts("mark") == ["shop::Cart<…>::add(int)"]
    page.press("escape", "tab")
    assert page.run("view.search") == "" and len(_table(page)) == 6
    page.click("#search")
    page.press("(")
    assert page.text("#matched") == "not a regular expression"
    assert page.run("get('search').ariaInvalid") == "true" and len(_table(page)) == 6


def test_a_link_keeps_the_view(page: Browser, tmp_path: Path) -> None:
    file = write_page(_trace(tmp_path))
    page.open(file)
    page.click(f"#graph div[title='{LONG}']")
    page.click("#graph div[title=read_line]")
    assert page.boxes(".outer") == ["main", LONG]
    assert page.boxes() == ["main", LONG, "read_line", "walk"]
    page.press("/", "walk")
    page.wait("location.hash.includes('walk')")
    link = page.run("location.href")
    page.click("#tab-table")
    page.click("th[data-key=own] button")
    page.click("th[data-key=own] button")
    table = page.run("location.href")
    page.open(file, link.removeprefix(file.as_uri()))
    assert page.boxes() == ["main", LONG, "read_line", "walk"]
    assert page.boxes(".found") == ["walk"] and page.run("get('search').value") == "walk"
    page.driver.get(table)
    assert page.run("get('flame').hidden") and page.run("view.up") == "1"
    assert page.run("document.querySelector('th[data-key=own]').ariaSort") == "ascending"
    page.click("#reset")
    page.click("#tab-flame")
    assert len(page.boxes()) == 8
    page.driver.back()
    page.wait("!get('table').hidden")
    for wrong in ("#zoom=nothing;main", "#tab=none&zoom=%&search=%", "#toString=1&constructor=2"):
        page.open(file, wrong)
        assert len(page.boxes()) == 8


def test_two_functions_of_one_name(page: Browser, tmp_path: Path) -> None:
    names = ("main", "twin", "other", "twin", *("rest" + c for c in "abcd"))
    thread = Thread(1).add(ENTRY, "main", 0)
    for name, inside in (("parse", "alloc"), ("walk", "hash")):
        begin = len(thread.events) * 1000
        thread.add(ENTRY, name, begin).add(ENTRY, inside, begin + 100)
        thread.add(EXIT, inside, begin + 300).add(EXIT, name, begin + 500)
    thread.add(EXIT, "main", 10_000)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog", names))}
    file = write_page(TraceFile([thread], header=header).write(tmp_path / "trace"))
    for number, inside in ((0, "resta"), (1, "restb")):
        page.open(file)
        page.run(f"document.querySelectorAll('#graph div[title=twin]')[{number}].click()")
        assert page.boxes() == ["main", "twin", inside]
        page.open(file, page.run("location.hash"))
        assert page.boxes() == ["main", "twin", inside]


def test_keys_move_through_the_flame_graph(page: Browser, tmp_path: Path) -> None:
    page.open(write_page(_trace(tmp_path)))
    page.run("get('callers').focus()")
    page.press("tab")
    assert page.focused == "main"
    page.press("down")
    assert page.focused == LONG, "the widest"
    assert page.text("#about").startswith(f"{LONG}\n69.000 us (62.73%), itself 15.000 us, 1 call")
    page.press("right")
    assert page.focused == "walk"
    page.press("right")
    assert page.focused == "walk", "no further"
    page.press("down", "up", "left", "down", "enter")
    assert page.boxes(".outer") == ["main", LONG] and page.focused == "read_line"
    page.press("up")
    assert page.focused == LONG
    page.press("escape")
    assert page.boxes(".outer") == [] and len(page.boxes()) == 8
    assert page.run("document.querySelectorAll('#graph [tabindex=\"0\"]').length") == 1
    roles = page.run("[...document.querySelectorAll('[role]')].map(one => one.role)")
    assert {"tablist", "tab", "tabpanel", "tree", "treeitem", "application", "note"} == set(roles)
    label = page.run("document.querySelector('#graph div').ariaLabel")
    assert label.startswith("main, 100.000 us (90.91%)")


def test_keys_move_through_the_rest(page: Browser, tmp_path: Path) -> None:
    page.open(write_page(_trace(tmp_path)))
    page.press("tab")
    assert page.focused == "search"
    page.press("tab")
    page.press("tab")
    page.press("tab")
    assert page.run("document.activeElement.id") == "tab-flame"
    page.press("right")
    assert page.run("document.activeElement.id") == "tab-table" and page.run("view.tab") == "table"
    for _ in range(8):  # six more columns, and the first name
        page.press("tab")
    assert page.focused == "main"
    page.press("down", "down")
    assert page.focused == "read_line"
    page.press("end", "home", "down", "enter")
    assert page.run("view.tab") == "flame" and set(page.boxes(".found")) == {LONG}
    page.click("#tab-timeline")
    page.press("left")
    assert page.run("document.activeElement.id") == "tab-table"
    page.press("right", "tab")
    assert page.run("document.activeElement.tagName") == "CANVAS"
    assert page.text("#about") == "main\n100.000 us at 0 ns"
    page.press("down", "down", "right")
    assert page.text("#about") == "read_line\n9.000 us at 12.000 us"
    page.press("enter")
    assert page.run("[view.from, view.to]") == ["12000", "21000"]
    page.press("down", "up", "up", "-")
    assert page.text("#about").startswith(LONG)
    assert page.run("range().length") == 18_000
    page.press("escape")
    assert page.run("[view.from, view.to]") == ["", ""]


def test_the_time_line_draws_threads(page: Browser, tmp_path: Path) -> None:
    page.open(write_page(_trace(tmp_path)), "#tab=timeline")
    assert page.texts("#lanes h2") == ["prog 100, thread 11", "prog 100, thread 12"]
    page.wait("lanes.every(lane => lane.visible)")

    def colour(lane: int, when: int, level: int) -> list[int]:
        found: list[int] = page.run(
            "(source => { const ink = new OffscreenCanvas(1, 1).getContext('2d');"
            f"ink.drawImage(source, {when} / 100000 * source.width, {level * 16 + 1},"
            f"1, 1, 0, 0, 1, 1); return [...ink.getImageData(0, 0, 1, 1).data] }})"
            f"(lanes[{lane}].canvas)"
        )
        return found

    assert colour(1, 25_000, 0) == colour(0, 80_000, 1) != colour(0, 50_000, 1)
    assert colour(1, 10_000, 0) == colour(1, 31_000, 0) == [0, 0, 0, 0]
    assert colour(0, 50_000, 1)[3] == 255
    page.press("/", "walk")
    assert colour(1, 25_000, 0) == [160, 32, 160, 255]
    assert page.texts("#axis span")[:2] == ["0 ns", "20.000 us"]
    middle = page.run("document.querySelector('canvas').clientWidth") // 2
    actions = __import__("selenium.webdriver", fromlist=["ActionChains"]).ActionChains(page.driver)
    canvas = page.driver.find_element("css selector", "canvas")
    actions.move_to_element_with_offset(canvas, 0, 0).click_and_hold()
    actions.move_by_offset(middle // 2, 0).release().perform()
    begin, end = map(int, page.run("[view.from, view.to]"))
    assert abs(begin - 50_000) < 500 and abs(end - 75_000) < 500


def test_callers(page: Browser, tmp_path: Path) -> None:
    """Functions by their own time, and above them, whoever called them."""
    page.open(write_page(_trace(tmp_path)))
    page.click("#callers")
    own: dict[str, int] = {}
    for thread in (_thread(), Thread(12).add(ENTRY, "walk", 20_000).add(EXIT, "walk", 30_000)):
        for func, sum_ in sums(thread.events)[0].items():
            own[NAMES[func // STRIDE]] = own.get(NAMES[func // STRIDE], 0) + sum_.own
    shown = page.run("within(root).map(node => [names[node.function], node.time])")
    assert dict(shown) == own
    page.click("#graph div[title=walk]")
    ways = page.run("within(zoomed()).map(node => [names[node.function], node.time])")
    assert sorted(ways) == [["main", 12_000], ["read_line", 18_000]]
    assert page.text("#about").startswith("walk\n40.000 us (36.36%) itself, 8 calls")
    page.open(tmp_path / "trace.html.html", page.run("location.hash"))
    assert page.boxes()[0] == "walk" and page.run("get('callers').ariaPressed") == "true"


@pytest.mark.parametrize("form", ["html", "flamegraph"])
def test_hostile_names_stay_text(page: Browser, tmp_path: Path, form: str) -> None:
    trace = _trace(tmp_path, EVIL, comm=b"<img src=x>")
    page.open(write_page(trace, form=form))
    title = page.run("document.title")
    assert title == "<img src=x> 100" and page.text("h1") == title
    views = ["flame", "table", "timeline"] if form == "html" else ["flame"]
    for view in views:
        page.run(f"go({{tab: '{view}'}})")
        page.wait(f"!get('{view}').hidden")
        assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.title") == title
    page.run("go({tab: 'flame'})")
    assert set(page.boxes()) == {*EVIL[:6]}
    for name in EVIL[:6]:
        page.run("go({zoom: ''})")
        page.run(f"boxes.find(box => names[box.node.function] === {name!r}).element.click()")
        assert page.run("names[zoomed().function]") == name
        if form == "html":
            page.run("go({tab: 'table', search: ''})")
            page.run(
                "[...document.querySelectorAll('#rows button')]"
                f".find(one => one.title === {name!r}).click()"
            )
            assert set(page.boxes(".found")) == {name}
            page.run("go({search: ''})")
    if form == "flamegraph":
        assert page.run("get('tabs').hidden")


def test_light_and_dark(page: Browser, tmp_path: Path) -> None:
    file = write_page(_trace(tmp_path))

    def light() -> bool:
        colour: str = page.run("getComputedStyle(document.body).backgroundColor")
        return colour == "rgb(255, 255, 255)"

    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        page.open(file)
        assert light() == (scheme == "light")
        page.click("#theme")
        assert light() and page.text("#theme") == "theme: light"
        page.click("#theme")
        assert not light() and page.text("#theme") == "theme: dark"
        page.click("#theme")
        assert light() == (scheme == "light")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def _narrow(tmp_path: Path) -> tuple[Path, Thread]:
    thread = Thread(1).add(ENTRY, "main", 0).add(ENTRY, "parse", 1000)
    for name in ("read_line", "walk", "alloc"):  # in the page, but less than a pixel
        thread.add(ENTRY, name, 2000).add(EXIT, name, 2300)
    thread.add(EXIT, "parse", 900_000).add(ENTRY, "walk", 900_000)
    for name in ("hash", "fail", "print_all"):  # not even in the page
        thread.add(ENTRY, name, 950_000).add(ENTRY, "alloc", 950_005).add(EXIT, "alloc", 950_010)
        thread.add(EXIT, name, 950_020)
    thread.add(EXIT, "walk", 1_500_000).add(ENTRY, "hash", 1_600_000).add(EXIT, "hash", 1_600_010)
    thread.add(EXIT, "main", 2_000_000)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog", NAMES))}
    return TraceFile([thread], header=header).write(tmp_path / "trace"), thread


@pytest.mark.parametrize("form", ["html", "flamegraph"])
def test_what_is_too_narrow_is_counted(page: Browser, tmp_path: Path, form: str) -> None:
    trace, thread = _narrow(tmp_path)
    page.open(write_page(trace, form=form))
    every = sums(thread.events)[1]
    assert page.boxes() == ["main", LONG, "walk"]
    assert page.texts("#graph div") == ["main", "shop::Cart<…>::add(int)", "walk"]
    assert page.text("#narrow") == f"{len(every) - 3} stacks too narrow to draw"
    page.click("#graph div[title=walk]")
    assert page.boxes() == ["main", "walk"]
    below = sum(1 for way in every if len(way) > 2 and way[1] == site("walk"))
    assert below == 6 and page.text("#narrow") == "6 stacks too narrow to draw"
    page.click("#callers")
    missing = 2_000_000 - page.run("ownTime")
    assert 0 < missing < 100
    assert page.text("#narrow") == f"{missing} ns (0.00%) in stacks too narrow to draw"
    for names, note in ((["main", "read_line"], "1 stack too narrow to draw"), (["main"], "")):
        page.open(write_page(trace, *(word for name in names for word in ("-f", name)), form=form))
        assert page.text("#narrow") == note
        page.click("#graph div")
        assert page.text("#narrow") == note


def test_what_is_missing_is_said(page: Browser, tmp_path: Path) -> None:
    page.open(write_page(_trace(tmp_path, lost0=3)))
    assert "3 events lost" in page.text("#notes")
    assert page.run("get('notes').getBoundingClientRect().height") > 0
    page.open(write_page(_trace(tmp_path)))
    assert page.text("#notes") == "" and page.text("#merged") == ""


def test_probes_and_empty_traces(page: Browser, tmp_path: Path) -> None:
    thread = Thread(1).add(RETURNED, 1, 900, BIAS, 400).add(RETURNED, 0, 1000, BIAS, 1000)
    probes = [Told("r:whole main", ip_of("main")), Told("r:part parse", ip_of("parse"))]
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog", NAMES))}
    page.open(write_page(ProbeFile(probes, [thread], header).write(tmp_path / "probes")))
    assert page.boxes() == ["main", "parse"]
    for view in ("table", "timeline"):
        page.run(f"go({{tab: '{view}'}})")
    page.open(write_page(TraceFile([], header=header).write(tmp_path / "empty")))
    for view in ("table", "timeline", "flame"):
        page.run(f"go({{tab: '{view}'}})")
    assert page.boxes() == []


def test_very_many_calls_and_functions(page: Browser, tmp_path: Path) -> None:
    """The page says what it merged, and what it does not show yet."""
    names = tuple(f"function_{number}" for number in range(1200))
    thread, time = Thread(1), 0
    for number in range(40_000):
        func = number % 1200 * STRIDE + 5
        thread.add(ENTRY, func, time).add(EXIT, func, time + 50 + number % 7)
        time += 60
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog", names))}
    trace = TraceFile([thread], chunk_size=1 << 16, header=header).write(tmp_path / "trace")
    page.open(write_page(trace), "#tab=timeline")
    page.wait("lanes[0].visible")
    merged = page.text("#merged")
    assert merged.startswith("40,000 calls shorter than ") and "of neighbours" in merged
    spent = page.run(
        "(() => { const a = performance.now(); show(); return performance.now() - a })()"
    )
    assert spent < 500
    page.click("#tab-table")
    assert len(_table(page)) == 500 and page.text("#more") == "700 more"
    page.click("#more")
    page.click("#more")
    assert len(_table(page)) == 1200 and page.run("get('more').hidden")
