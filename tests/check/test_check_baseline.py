# SPDX-License-Identifier: MIT
"""Known findings: a gate fails for new ones only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.broken import put_code, put_words, words_of
from tests.support.command import Result, ftpatch
from tests.support.images import fentry_kernel, pad_program, symbols_at

PROGRAM, X86 = 0x40_1000, 0xFFFF_FFFF_8100_0000
LINE = {"image": "image", "invariant": "site-known", "place": "schedule"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _broken(*names: str, path: str = "image", shift: int = 0) -> Path:
    """A program in which these functions' sites hold something else, all of it ``shift`` bytes
    further up, as after a build."""
    image = pad_program()
    for name in names:
        put_code(image, symbols_at(PROGRAM)[name], b"\xcc")
    if shift:
        for section in image.sections:
            section.address += shift
        image.symbols = [type(s)(**{**vars(s), "value": s.value + shift}) for s in image.symbols]
        name = "__patchable_function_entries"
        put_words(image, [word + shift for word in words_of(image, name)], name)
    Path(path).write_bytes(image.build())
    return Path(path)


def _entries(path: str = "known") -> list[dict[str, str]]:
    lines = Path(path).read_text().splitlines()
    return [json.loads(line) for line in lines if not line.startswith("#")]


def _check(*arguments: str | Path) -> Result:
    return ftpatch("check", "--baseline", "known", *arguments)


def test_only_what_is_new_counts() -> None:
    _broken("vfs_read", "schedule")
    written = ftpatch("check", "--write-baseline", "known", "image")
    assert written.code == 0
    assert written.err == "ftpatch: wrote known: 2 known exceptions\n"
    assert _entries() == [{**LINE, "place": "schedule"}, {**LINE, "place": "vfs_read"}]
    assert _check("image") == Result(0, "image: 2 known exceptions, nothing new\n", "")
    assert _check("image", "--json") == Result(0, "", "")
    _broken("vfs_read", "schedule", "do_exit")
    result = _check("image")
    assert result.code == 1
    first, second = result.out.splitlines()
    assert "do_exit+0x0" in first and second == "image: 2 known exceptions"
    assert [row["symbol"] for row in _check("image", "--json").json] == ["do_exit+0x0"]


def test_what_is_not_found_any_more_is_said() -> None:
    _broken("vfs_read", "schedule")
    assert ftpatch("check", "--write-baseline", "known", "image").code == 0
    _broken("schedule")
    stale = "known: stale: image: site-known: vfs_read"
    result = _check("image")
    assert result == Result(0, f"image: 1 known exception, nothing new\n{stale}\n", "")
    assert _check("image", "-q") == Result(0, "", "")
    assert _check("image", "--json") == Result(0, "", f"ftpatch: {stale}\n")
    assert _check("image", "--format", "junit").err == f"ftpatch: {stale}\n"
    said = _check("image", "--format", "github")
    assert said == Result(0, f"::notice title=ftpatch::{stale}\n", "")


def test_of_images_that_were_not_checked_nothing_is_said() -> None:
    _broken("vfs_read")
    _broken("schedule", path="other")
    assert ftpatch("check", "--write-baseline", "known", "image", "other").code == 0
    assert "stale" not in _check("image").out
    Path("other").write_bytes(b"no ELF\n")
    result = _check("image", "other")
    assert result.code == 2 and "stale" not in result.out + result.err


def test_addresses_may_move() -> None:
    _broken("vfs_read")
    assert ftpatch("check", "--write-baseline", "known", "image").code == 0
    Path("elsewhere").mkdir()
    path = _broken("vfs_read", path="elsewhere/image", shift=0x1000)
    result = _check(path)
    assert (result.code, result.out) == (0, f"{path}: 1 known exception, nothing new\n")
    assert _broken("vfs_read", path="renamed") and _check("renamed").code == 1


def test_the_ftrace_bug_is_known_by_its_function() -> None:
    image = put_code(fentry_kernel(), symbols_at(X86)["vfs_write"], bytes(5))
    Path("image").write_bytes(image.build())
    assert ftpatch("check", "--write-baseline", "known", "image").code == 0
    assert {**LINE, "invariant": "ftrace_init", "place": "vfs_write"} in _entries()
    result = _check("image")
    assert result.code == 0 and "one ftrace bug" in result.out
    assert "image: verdict: ftrace will be off (known)\n" in result.out
    put_code(image, symbols_at(X86)["vfs_read"], bytes(5))
    Path("image").write_bytes(image.build())
    assert "image: verdict: ftrace will be off\n" in _check("image").out
    fresh = [(row["invariant"], row["symbol"]) for row in _check("image", "--json").json]
    assert ("ftrace_init", "vfs_read+0x0/0x40") in fresh


def test_without_a_symbol_the_address_counts() -> None:
    image = pad_program()
    put_code(image, symbols_at(PROGRAM)["vfs_read"], b"\xcc")
    image.symbols = []
    Path("image").write_bytes(image.build())
    assert ftpatch("check", "--write-baseline", "known", "image").code == 0
    assert _entries() == [{**LINE, "place": hex(symbols_at(PROGRAM)["vfs_read"])}]
    assert _check("image").code == 0


def test_a_line_covers_one_finding() -> None:
    """A record that is there three times is two findings of one function."""
    image = pad_program()
    name = "__patchable_function_entries"
    words = words_of(image, name)
    Path("image").write_bytes(put_words(image, [*words, words[0]], name).build())
    assert ftpatch("check", "--write-baseline", "known", "image").code == 0
    Path("image").write_bytes(put_words(image, [*words, words[0], words[0]], name).build())
    result = _check("image")
    assert result.code == 1 and result.out.count("record-unique") == 1
    again = ftpatch("check", "--write-baseline", "known", "image")
    assert (again.code, again.err) == (0, "ftpatch: replaced known: 2 known exceptions\n")
    assert len(_entries()) == 2 and _check("image").code == 0


def test_two_images_of_one_name_are_not_told_apart() -> None:
    """Each would take the other's lines."""
    for folder in ("a", "b"):
        Path(folder).mkdir()
        _broken("vfs_read", path=f"{folder}/image")
    for option in ("--baseline", "--write-baseline"):
        result = ftpatch("check", option, "known", "a/image", "b/image")
        assert result.code == 2 and "a/image has the same" in result.err and not result.out
    assert not Path("known").exists()
    assert ftpatch("check", "a/image", "b/image").code == 1
    assert ftpatch("check", "--write-baseline", "known", "a/image", "a/image").code == 2
