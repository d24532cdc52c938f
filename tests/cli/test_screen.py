# SPDX-License-Identifier: MIT
"""Tables and colours on terminals of all sorts: a terminal's emulator says what stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_process
from tests.support.samples import sample
from tests.support.terminals import on_screen

WIDTHS = [40, 60, 80, 200]
SGR = re.compile(rb"\x1b\[[0-9;]*m")
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
GREEN, CYAN, YELLOW, RED = "green", "cyan", "brown", "red"
"""As pyte has them: the terminal's second yellow is the bright one."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images, and in it ``off``, a kernel some of whose calls are off and dropped."""
    folder = tmp_path_factory.mktemp("kernels")
    for name in ("vmlinux-x86_64", "vmlinux-arm64", "fentry", "pad"):
        shutil.copy(sample(name).path, folder / name)
    done = ftpatch("disable", folder / "vmlinux-x86_64", "-f", "vfs_*", "-o", folder / "off")
    assert done.code == 0
    return folder


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A program one of whose sites holds something else."""
    path = tmp_path / "broken"
    data = bytearray(sample("pad").path.read_bytes())
    data[ftpatch("list", "--json", sample("pad").path).json[3]["offset"]] = 0xCC
    path.write_bytes(data)
    return path


def _words(verb: str, folder: Path) -> tuple[str | Path, ...]:
    kernel, off = folder / "vmlinux-x86_64", folder / "off"
    return {
        "list": ("list", off),
        "status": ("status", off),
        "tree": ("status", folder),
        "diff": ("diff", kernel, off),
        "stat": ("diff", "--stat", kernel, off),
        "check": ("check", off),
    }[verb]


VERBS = ["list", "status", "tree", "diff", "stat", "check"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_wide_terminal_shows_what_a_pipe_gets(verb: str, kernels: Path) -> None:
    words = _words(verb, kernels)
    shown, piped = on_screen(*words, columns=400), ftpatch_process(*words)
    assert (shown.code, shown.lines) == (piped.code, piped.out.splitlines())


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("verb", ["list", "status", "tree", "diff", "stat"])
def test_tables_fit(verb: str, columns: int, kernels: Path) -> None:
    """A row wider than the screen would go on in the next line, where no column is: the names of
    the columns would stand in more than one line, and addresses would be cut."""
    words = _words(verb, kernels)
    lines, piped = on_screen(*words, columns=columns).lines, ftpatch_process(*words).out
    head = next(line for line in piped.splitlines() if line.upper() == line and "  " in line)
    here = next(line for line in lines if line.split()[:1] == head.split()[:1])
    left_out = [line for line in lines if line.startswith("(no room for ")]
    missing = left_out[0][len("(no room for ") : -1].split(", ") if left_out else []
    assert sorted(here.split() + missing) == sorted(head.split())
    assert not missing or columns < 80
    table = piped[piped.index(head) :]
    for address in ADDRESS.findall(table):
        assert any(address in line for line in lines), address
    rows = [line for line in table.splitlines()[1:] if "  " in line]
    firsts = [line.split("  ")[0] for line in rows if not line.startswith(" ")]
    if verb in ("list", "tree"):
        assert [line.split("  ")[0] for line in lines if line.split("  ")[0] in firsts] == firsts


def test_nothing_is_lost_in_folds(kernels: Path) -> None:
    """Cells in parts below each other are the cells of the pipe's table."""
    words = ("diff", kernels / "vmlinux-x86_64", kernels / "off")
    piped = ftpatch_process(*words).out.split("KIND ")[1].splitlines()[1:]
    lines = on_screen(*words, columns=40).lines
    head = lines[0]
    begins = [head.index(name) for name in ("KIND", "PLACE", "BEFORE", "AFTER")]
    rows: list[list[str]] = []
    for line in lines[1:]:
        if line.startswith("KIND"):
            break
        cells = [line[a:b].strip() for a, b in zip(begins, [*begins[1:], None], strict=True)]
        if cells[0]:
            rows.append(["", "", "", ""])
        rows[-1] = [old + new for old, new in zip(rows[-1], cells, strict=True)]
    folded = ["".join(row).replace(" ", "") for row in rows]
    assert folded == [line.replace(" ", "") for line in piped[: len(rows)]]
    assert len(rows) > 4


def test_states_have_colours(kernels: Path, broken: Path) -> None:
    listed = on_screen("list", kernels / "off")
    lines = listed.lines
    off = next(at for at, line in enumerate(lines) if "vfs_read+" in line)
    on = next(at for at, line in enumerate(lines) if "__fentry__" in line)
    buffer = listed.screen.buffer
    assert {buffer[off][x].fg for x in _span(lines[off], "nop")} == {CYAN}
    assert {buffer[off][x].fg for x in _span(lines[off], "dropped")} == {YELLOW}
    assert {buffer[on][x].fg for x in _span(lines[on], "call")} == {GREEN}
    assert {buffer[on][x].fg for x in _span(lines[on], "__fentry__")} == {"default"}
    status = on_screen("status", kernels / "off")
    assert status.colour("4 dropped") == YELLOW
    assert status.colours == {GREEN, CYAN, YELLOW}
    assert on_screen("status", broken).colour("unexpected") == RED
    assert on_screen("status", sample("pad").path).colour("unexpected") == "default"


def _span(line: str, word: str) -> range:
    return range(line.index(word), line.index(word) + len(word))


def test_verdicts_have_colours(kernels: Path, broken: Path) -> None:
    good = on_screen("check", kernels / "vmlinux-x86_64", columns=200)
    assert good.colour("boots and ftrace works") == good.colour("every invariant holds") == GREEN
    found = on_screen("check", broken, columns=200)
    assert found.code == 1 and found.colours == {RED}
    assert found.lines[0].startswith(f"{broken}: ") and "site-" in found.lines[0]
    many = on_screen("check", broken.parent, columns=200)
    assert many.colour("1 with findings") == RED
    assert on_screen("check", kernels, columns=200).colour("every invariant holds") == GREEN
    same = kernels / "pad"
    assert on_screen("diff", same, same).colour("nothing differs") == GREEN
    refused = on_screen("enable", broken, "--dry-run", columns=200)
    assert refused.code == 1 and refused.colour("1 refused") == RED


def test_errors_have_colours() -> None:
    shown = on_screen("list", "/nonexistent")
    assert shown.code == 2 and shown.colour("ftpatch:") == RED
    assert shown.colour("cannot read") == "default"


@pytest.mark.parametrize(
    "environment",
    [{"NO_COLOR": "1"}, {"NO_COLOR": "0"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}],
    ids=["NO_COLOR=1", "NO_COLOR=0", "dumb", "both"],
)
@pytest.mark.parametrize("verb", VERBS)
def test_without_colours(verb: str, environment: dict[str, str], kernels: Path) -> None:
    shown = on_screen(*_words(verb, kernels), columns=200, environment=environment)
    assert not SGR.search(shown.raw) and shown.lines
    assert b"\x1b" not in shown.raw or "TERM" not in environment


def test_an_empty_no_color_is_none(kernels: Path) -> None:
    assert on_screen("list", kernels / "off", environment={"NO_COLOR": ""}).colours == {
        GREEN,
        CYAN,
        YELLOW,
    }


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}], ids=["plain", "FORCE_COLOR"])
def test_each_stream_has_its_own_terminal(
    environment: dict[str, str], kernels: Path, tmp_path: Path
) -> None:
    words = ("status", kernels / "off", "/nonexistent")
    with (tmp_path / "out").open("wb") as out:
        shown = on_screen(*words, out=out, environment=environment)
    piped = ftpatch_process(*words)
    assert (tmp_path / "out").read_text() == piped.out
    assert shown.colour("ftpatch:") == RED and shown.lines == piped.err.splitlines()
    with (tmp_path / "err").open("wb") as err:
        shown = on_screen(*words, err=err, environment=environment)
    assert (tmp_path / "err").read_text() == piped.err and YELLOW in shown.colours


@pytest.mark.parametrize("columns", [40, 80])
def test_help_fits(columns: int) -> None:
    lines = on_screen("status", "--help", columns=columns).lines
    words = ftpatch_process("status", "--help").out.split()
    assert " ".join(lines).split() == words, "no word is broken"


def test_names_of_two_columns_are_aligned(tmp_path: Path) -> None:
    """As file names may have them."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for name in ("pad", "補丁補丁", "fentry"):
        shutil.copy(sample("pad").path, folder / name)
    shown = on_screen("status", folder)
    head, *rows = shown.lines[:4]
    right = head.index("SITES") + len("SITES")
    for at in range(1, 4):
        assert shown.screen.buffer[at][right - 1].data == "7", rows
