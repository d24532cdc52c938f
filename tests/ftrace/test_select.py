# SPDX-License-Identifier: MIT
"""Which sites a filter means, on an image made for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.filter import Selection, select_sites
from ftpatch.ftrace.sites import Sites, read_sites
from ftpatch.image import open_image
from tests.support.elf_writer import Symbol
from tests.support.images import FUNCTIONS, arm64_rela_kernel, fentry_kernel, symbols_at

BASE = 0xFFFF_FFFF_8100_0000
AT = symbols_at(BASE)


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    """A kernel with an alias, a name that two functions share, and odd names."""
    image = fentry_kernel((*FUNCTIONS, "find_slot.1", "find_slot.2", "no_name"))
    symbols = [s for s in image.symbols if s.name != "no_name"]
    places = symbols_at(BASE, (*FUNCTIONS, "find_slot.1", "find_slot.2", "no_name"))
    for i in (1, 2):
        symbols.append(Symbol("find_slot", places[f"find_slot.{i}"], 64, bind=0))
    symbols.append(Symbol("__se_sys_read", AT["__x64_sys_read"], 64))
    symbols.append(Symbol("$x", AT["do_exit"], 0, 0, 0))
    symbols.append(Symbol("L0\x01", AT["do_exit"], 0, 0, 0))
    symbols.append(Symbol("__pfx_do_exit", AT["do_exit"], 0, 0, 0))
    symbols.append(Symbol("vfs_declared", 0, section=None))
    image.symbols = symbols
    path = tmp_path / "vmlinux"
    path.write_bytes(image.build())
    return read_sites(open_image(path))


def _chosen(sites: Sites, *filters: str, notrace: tuple[str, ...] = (), regex: bool = False) -> str:
    """The first names of the chosen sites, in the order of the table."""
    mask = select_sites(sites, Selection(filters, notrace, regex))
    assert mask.dtype == bool and len(mask) == len(sites)
    places = sites.image.kallsyms.lookup(sites.ip[mask])
    return " ".join(name if not offset else f"{name}+{offset:#x}" for name, offset, _ in places)


ALL = "vfs_read vfs_write do_exit schedule __se_sys_read ksys_dup3 find_slot find_slot"
UNNAMED = "find_slot+0x40"
"""The ninth function has no symbol: it is kallsyms' ``find_slot+0x40``, but not find_slot."""


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["vfs_read"], "vfs_read"),
        (["vfs_*"], "vfs_read vfs_write"),
        (["*"], ALL),
        (["vfs_????"], "vfs_read"),
        (["vfs_[w-z]*"], "vfs_write"),
        (["vfs_[!w]*"], "vfs_read"),
        (["schedule", "do_exit"], "do_exit schedule"),
        (["vfs_*", "!vfs_write"], "vfs_read"),
        (["vfs_*", "!vfs_*", "vfs_write"], "vfs_write"),
        (["!vfs_*"], "do_exit schedule __se_sys_read ksys_dup3 find_slot find_slot " + UNNAMED),
        (["find_slot"], "find_slot find_slot"),
        (["find_slot.1"], "find_slot"),
        (["__x64_sys_read"], "__se_sys_read"),
        (["__se_sys_*"], "__se_sys_read"),
        (["__x64_*", "__se_*"], "__se_sys_read"),
    ],
)
def test_globs(sites: Sites, filters: list[str], wanted: str) -> None:
    assert _chosen(sites, *filters) == wanted


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["vfs_(read|write)"], "vfs_read vfs_write"),
        (["vfs"], None),  # the whole name, not a part of it
        (["!vfs_.*", "do_.*"], ALL.replace("vfs_read vfs_write ", "") + " " + UNNAMED),
        ([r"find_slot\.[12]"], "find_slot find_slot"),
        (["vfs_("], None),
        (["vfs_*"], None),  # as a regular expression: vfs, then underscores
    ],
)
def test_regular_expressions(sites: Sites, filters: list[str], wanted: str | None) -> None:
    if wanted is None:
        with pytest.raises(UsageError):
            _chosen(sites, *filters, regex=True)
    else:
        assert _chosen(sites, *filters, regex=True) == wanted


def test_without_a_filter_all_are_chosen(sites: Sites) -> None:
    assert _chosen(sites) == f"{ALL} {UNNAMED}"


def test_notrace_has_the_last_word(sites: Sites) -> None:
    assert _chosen(sites, "vfs_*", notrace=("vfs_read",)) == "vfs_write"
    assert _chosen(sites, notrace=("*",)) == UNNAMED
    with pytest.raises(UsageError, match="select no site"):
        _chosen(sites, "vfs_*", notrace=("*",))


@pytest.mark.parametrize(
    "text",
    ["nothing", "no_*", "", "no_name", "__pfx_do_exit", "$x", "L0\x01", "vfs_declared"],
)
@pytest.mark.parametrize("where", ["filters", "removed", "notrace"])
def test_what_matches_nothing_is_an_error(sites: Sites, text: str, where: str) -> None:
    filters = {"filters": [text], "removed": ["*", f"!{text}"], "notrace": []}[where]
    notrace = (text,) if where == "notrace" else ()
    with pytest.raises(UsageError, match="matches no site") as caught:
        _chosen(sites, *filters, notrace=notrace)
    assert repr(text) in str(caught.value)


def test_one_of_several_that_matches_nothing_is_an_error(sites: Sites) -> None:
    with pytest.raises(UsageError, match="'nothing'"):
        _chosen(sites, "vfs_*", "nothing")


def test_addresses(sites: Sites) -> None:
    assert _chosen(sites, hex(AT["schedule"])) == "schedule"
    assert _chosen(sites, hex(AT["schedule"]).upper().replace("X", "x")) == "schedule"
    assert _chosen(sites, "*", "!" + hex(AT["schedule"])) == ALL.replace("schedule ", "")
    assert _chosen(sites, hex(BASE + 64 * 9)) == UNNAMED, "all that a nameless function has"
    for outside in (AT["schedule"] + 1, 0, (1 << 64) - 1):
        with pytest.raises(UsageError, match="matches no site"):
            _chosen(sites, hex(outside))


def test_a_pair_may_be_named_by_either_address(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(arm64_rela_kernel().build())
    sites = read_sites(open_image(path))
    at = int(sites.ip[2])
    assert _chosen(sites, hex(at)) == _chosen(sites, hex(at - 4)) == "do_exit+0x4"


def test_files(sites: Sites, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("# functions\nvfs_*\n\n  schedule  \n!vfs_read\n")
    assert _chosen(sites, f"@{names}") == "vfs_write schedule"
    assert _chosen(sites, f"@{names}", "do_exit") == "vfs_write do_exit schedule"
    names.write_text("vfs_*\nmissing\n")
    with pytest.raises(UsageError, match="'missing'"):
        _chosen(sites, f"@{names}")


def test_unreadable_files(sites: Sites, tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing", tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for path, words in (
        (missing, "No such file"),
        (tmp_path, "not a regular file"),
        (binary, "UTF-8"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            _chosen(sites, f"@{path}")
        assert caught.value.path == str(path)


def test_an_empty_file_selects_nothing(sites: Sites, tmp_path: Path) -> None:
    """A list that came out empty must not mean every function of the kernel."""
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n\n")
    with pytest.raises(UsageError):
        _chosen(sites, f"@{empty}")


def test_a_file_may_be_taken_away(sites: Sites, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("vfs_read\nschedule\n")
    assert _chosen(sites, "vfs_*", f"!@{names}") == "vfs_write"
