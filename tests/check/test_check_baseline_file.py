# SPDX-License-Identifier: MIT
"""The file of known findings: what is read, what is refused, and how it is written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.errors import InputError
from ftpatch.ftrace.check.baseline import read_baseline, write_baseline
from ftpatch.ftrace.check.check import INVARIANTS, Check, Finding
from tests.support.broken import put_code
from tests.support.command import Result, ftpatch
from tests.support.images import FUNCTIONS, pad_program, symbols_at

LINE = {"image": "image", "invariant": "site-known", "place": "schedule"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _broken(*names: str) -> Path:
    """A program in which these functions' sites hold something else."""
    image = pad_program()
    for name in names:
        put_code(image, symbols_at(0x40_1000)[name], b"\xcc")
    path = Path("image")
    path.write_bytes(image.build())
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nothing", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ("[1]", "expected an object with"),
        (
            '{"image": "a", "invariant": "site-known"}',
            "expected an object with image, invariant, place",
        ),
        (json.dumps(LINE | {"ip": "0x0"}), "expected an object with"),
        (json.dumps(LINE | {"place": 3}), "not a string"),
        (json.dumps(LINE | {"invariant": "site-knwon"}), "site-knwon"),
        ("\udcff", "not a JSON object"),
    ],
)
def test_a_bad_line_is_named(line: str, words: str) -> None:
    _broken("schedule")
    text = f"# comment\n\n{json.dumps(LINE)}\n{line}\n{json.dumps(LINE)}\n"
    Path("known").write_bytes(text.encode("utf-8", "surrogateescape"))
    result = ftpatch("check", "--baseline", "known", "image")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("ftpatch: known: line 4: ") and words in result.err
    assert result.err.count("\n") == 1


def test_a_baseline_by_hand() -> None:
    """Comments, empty lines, other line ends and another order are fine."""
    _broken("schedule", "vfs_read")
    lines = ["# why", "", json.dumps(LINE | {"place": "vfs_read"}), json.dumps(LINE), "   "]
    Path("known").write_bytes("\r\n".join(lines).encode())
    assert ftpatch("check", "--baseline", "known", "image").code == 0


def test_files_that_are_no_baseline() -> None:
    image = _broken("schedule")
    before = image.read_bytes()
    Path("folder").mkdir()
    Path("link").symlink_to("target")
    for name, words in (("image", "not a baseline"), ("folder", "regular"), ("link", "link")):
        result = ftpatch("check", "--write-baseline", name, "image")
        assert result.code == 2 and words in result.err and not result.out
    assert image.read_bytes() == before and not Path("target").exists()
    assert ftpatch("check", "--write-baseline", "no/where", "image").code == 2
    for name in ("missing", "folder"):
        result = ftpatch("check", "--baseline", name, "image")
        assert result.code == 2 and "cannot read" in result.err and not result.out


def test_it_is_not_written_if_an_image_cannot_be_read() -> None:
    """What it knew of that image would be lost."""
    _broken("schedule")
    assert ftpatch("check", "--write-baseline", "known", "image").code == 0
    before = Path("known").read_bytes()
    Path("other").write_bytes(b"no ELF\n")
    result = ftpatch("check", "--write-baseline", "known", "image", "other")
    assert result.code == 2 and "not written" in result.err and "site-known" in result.out
    assert Path("known").read_bytes() == before


def test_it_is_whole_or_not_there() -> None:
    _broken("schedule")
    with mock.patch("pathlib.Path.replace", side_effect=OSError(28, "No space left on device")):
        result = ftpatch("check", "--write-baseline", "known", "image")
    assert result.code == 2 and "No space left" in result.err
    assert {path.name for path in Path().iterdir()} == {"image"}
    old = os.umask(0o027)
    try:
        assert ftpatch("check", "--write-baseline", "known", "image").code == 0
    finally:
        os.umask(old)
    assert stat.S_IMODE(Path("known").stat().st_mode) == 0o640
    assert {path.name for path in Path().iterdir()} == {"image", "known"}


def test_nothing_found_is_a_baseline_too() -> None:
    _broken()
    assert ftpatch("check", "--write-baseline", "known", "image").code == 0
    lines = Path("known").read_text().splitlines()
    assert lines and all(line.startswith("#") for line in lines)
    assert ftpatch("check", "--baseline", "known", "image") == Result(
        0, "image: every invariant holds\n", ""
    )


FINDINGS = st.builds(
    Finding,
    invariant=st.sampled_from(list(INVARIANTS)),
    ip=st.integers(0, 2**64 - 1),
    symbol=st.text(st.characters(codec=None))
    | st.sampled_from([f"{name}+0x4" for name in FUNCTIONS]),
    message=st.just("message"),
)
CHECKS = st.dictionaries(st.text(st.characters(codec=None)), st.lists(FINDINGS, max_size=5))


@given(CHECKS)
def test_what_is_written_is_known(found: dict[str, list[Finding]]) -> None:
    checks = {
        key: Check(findings=tuple(findings), ftrace_init=None) for key, findings in found.items()
    }
    path = Path("any")
    with mock.patch("os.fsync"):
        write_baseline(path, checks.items())
    text = path.read_text("ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == sum(map(len, found.values())), "a line for each"
    known = read_baseline(path)
    for key, check in checks.items():
        left = known.sift(key, check)
        assert left.findings == () and left.known == check.findings
    assert list(known.stale()) == []


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_a_bad_file(data: bytes) -> None:
    path = Path("any")
    path.write_bytes(data)
    try:
        read_baseline(path)
    except InputError as error:
        assert "line " in str(error)
