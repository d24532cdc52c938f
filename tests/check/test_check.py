# SPDX-License-Identifier: MIT
"""One image for each kind of breakage: each is found, by its name, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broken import check, found, put_code, put_words, words_of
from tests.support.command import ftpatch
from tests.support.elf_writer import PF_R, SHF_ALLOC, SHF_EXECINSTR, Image, Section, Segment
from tests.support.images import (
    arm64_callops_kernel,
    arm64_rela_kernel,
    arm64_relr_kernel,
    call32,
    fentry_kernel,
    pad_program,
    section,
    symbols_at,
)
from tests.support.samples import SAMPLES, Sample
from tests.support.tables import rela

X86, ARM64, PROGRAM = 0xFFFF_FFFF_8100_0000, 0xFFFF_8000_8001_0000, 0x40_1000
P6 = bytes.fromhex("0f1f440000")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_samples_are_clean(sample: Sample) -> None:
    result = ftpatch("check", "--json", sample.path)
    if sample.name == "libfentry.so":  # check of what parses never ends with 2
        assert (result.code, result.only["invariant"]) == (1, "table-found")
        return
    assert (result.code, result.out, result.err) == (0, "", "")


@pytest.mark.parametrize(
    "make",
    [fentry_kernel, pad_program, arm64_rela_kernel, arm64_relr_kernel, arm64_callops_kernel],
)
def test_made_images_are_clean(make: Callable[[], Image], tmp_path: Path) -> None:
    assert found(make(), tmp_path) == []


def test_a_record_twice(tmp_path: Path) -> None:
    """In a kernel the second meets what ftrace_init made of the first."""
    at, over = symbols_at(X86)["vfs_write"], list(symbols_at(X86).values())[2]
    image = fentry_kernel()
    words = words_of(image)
    assert words[1:3] == [at, over]
    put_words(image, [words[0], at, at, *words[3:]])
    assert found(image, tmp_path) == [
        ("record-unique", at, "vfs_write+0x0"),
        ("record-lost", over, "do_exit+0x0"),
        ("ftrace_init", at, "vfs_write+0x0/0x40"),
    ]
    assert check(image, tmp_path).json[2]["bug"].splitlines() == [
        "------------[ ftrace bug ]------------",
        "ftrace failed to modify",
        "[<ffffffff81000080>] vfs_write+0x0/0x40",
        " actual:   0f:1f:44:00:00",
        " expected: e8:83:ff:ff:ff",
        "Initializing ftrace call sites",
    ]


def test_a_record_twice_in_a_program(tmp_path: Path) -> None:
    image = pad_program()
    name = "__patchable_function_entries"
    words = words_of(image, name)
    put_words(image, [*words, words[2]], name)
    assert found(image, tmp_path) == [("record-unique", words[2], "do_exit+0x0")]


def test_a_record_in_data(tmp_path: Path) -> None:
    """A kernel without null records does not look where a record points before it reads."""
    data = X86 + 0x10000
    image = fentry_kernel()
    put_words(image, [*words_of(image)[:-1], data])
    rows = found(image, tmp_path)
    last = list(symbols_at(X86).values())[-1]
    assert [row[:2] for row in rows] == [
        ("record-in-text", data),
        ("record-lost", last),
        ("ftrace_init", data),
    ]


@pytest.mark.parametrize("nulls", [0, 1])
def test_a_record_in_data_is_skipped_by_a_kernel_that_knows_nulls(
    nulls: int, tmp_path: Path
) -> None:
    """By its table; without nulls there, by its words. It does not count such records."""
    data = X86 + 0x10000
    image = fentry_kernel(nulls=nulls)
    put_words(image, [*words_of(image)[:-1], data])
    if not nulls:
        words = b"\0014Extra allocated pages for ftrace: %lu with %lu skipped\n\0"
        image.sections.append(Section(".rodata", words, X86 + 0x20000, flags=SHF_ALLOC))
        image.segments.append(Segment((".rodata",), PF_R))
    rows, last = found(image, tmp_path), list(symbols_at(X86).values())[-1]
    assert [row[:2] for row in rows] == [("record-in-text", data), ("record-lost", last)]
    count = len(symbols_at(X86)) - 1
    said = ftpatch("check", tmp_path / "image").out
    assert f"ftrace: allocating {count} entries, no ftrace bug" in said


def test_a_record_outside_of_everything(tmp_path: Path) -> None:
    image = fentry_kernel()
    put_words(image, [*words_of(image)[:-1], 0xFFFF_FFFF_F000_0000])
    rows = check(image, tmp_path).json
    assert [row["invariant"] for row in rows] == ["record-in-text", "record-lost", "ftrace_init"]
    lines = rows[2]["bug"].splitlines()
    assert lines[1] == "ftrace faulted on modifying" and lines[-1].startswith("Initializing")
    assert len(lines) == 4, "what cannot be read is not shown"


def test_a_record_that_is_not_aligned(tmp_path: Path) -> None:
    image = arm64_relr_kernel()
    words = words_of(image)
    put_words(image, [*words[:2], words[2] + 2, *words[3:]])
    names = {row[0] for row in found(image, tmp_path)}
    assert names >= {"record-aligned", "ftrace_init"}
    assert not {"record-unique", "record-in-text", "record-sorted", "site-overlap"} & names


def test_records_out_of_order(tmp_path: Path) -> None:
    names = tuple(f"function_{i:02}" for i in range(40))
    image = fentry_kernel(names)
    words = words_of(image)
    words[10], words[11] = words[11], words[10]
    put_words(image, words)
    assert found(image, tmp_path) == [("record-sorted", words[11], "function_10+0x0")]


def test_order_is_no_rule_where_relocations_fill_the_table(tmp_path: Path) -> None:
    image = arm64_rela_kernel()
    at = section(image, ".init.data").address
    values = list(reversed(symbols_at(ARM64).values()))
    rows = [(at + 8 * i, 1027, 0, value) for i, value in enumerate(values)]
    section(image, ".rela.dyn").data = rela(image, rows)
    assert found(image, tmp_path) == []


def test_sites_that_share_bytes(tmp_path: Path) -> None:
    image = pad_program(b"\x90" * 8)
    name = "__patchable_function_entries"
    words = words_of(image, name)
    put_words(image, [*words, words[0] + 3], name)
    assert found(image, tmp_path) == [
        (name, words[0] + 3, "vfs_read+0x3") for name in ("record-in-function", "site-overlap")
    ]


def test_a_pad_of_which_nothing_tells_where_code_begins(tmp_path: Path) -> None:
    """Of eight NOPs three may lie before the function: a call over the edge would be run into."""
    image = pad_program(b"\x90" * 8)
    places = list(symbols_at(PROGRAM).values())
    assert found(image, tmp_path) == []
    image.symbols = [s for s in image.symbols if s.value not in places]
    assert [row[:2] for row in found(image, tmp_path)] == [("site-placed", at) for at in places]
    result = ftpatch("enable", tmp_path / "image")
    assert result.code == 1 and "longer than a call" in result.err
    image = pad_program(b"\x90" * 5)
    image.symbols = [s for s in image.symbols if s.value not in places]
    assert found(image, tmp_path) == [], "with five there is no choice"


@pytest.mark.parametrize("code", [b"\xcc" * 5, bytes.fromhex("0f1f440001"), b"\xe9" + bytes(4)])
def test_bytes_that_are_neither_nop_nor_call(code: bytes, tmp_path: Path) -> None:
    at = symbols_at(PROGRAM)["schedule"]
    image = put_code(pad_program(), at, code)
    assert found(image, tmp_path) == [("site-known", at, "schedule+0x0")]
    assert code.hex(":") in check(image, tmp_path).only["message"]


def test_a_call_of_something_else(tmp_path: Path) -> None:
    at, target = symbols_at(PROGRAM)["schedule"], symbols_at(PROGRAM)["vfs_read"]
    image = put_code(pad_program(), at, call32(at, target))
    assert found(image, tmp_path) == [("site-target", at, "schedule+0x0")]
    assert "calls vfs_read," in check(image, tmp_path).only["message"]
    image = put_code(pad_program(), at, call32(at, PROGRAM + 16))
    assert found(image, tmp_path) == [], "ftrace_caller is the image's own"


def test_findings_are_counted_over_all_images(tmp_path: Path) -> None:
    good, bad, broken = (tmp_path / name for name in ("good", "bad", "broken"))
    good.write_bytes(pad_program().build())
    bad.write_bytes(put_code(pad_program(), PROGRAM + 64, b"\xcc").build())
    broken.write_bytes(b"\x7fELF")
    assert ftpatch("check", good, bad, good).code == 1
    result = ftpatch("check", good, broken, bad)
    assert result.code == 2 and result.err.count("\n") == 1 and "site-known" in result.out


def test_an_image_of_another_kind_of_text(tmp_path: Path) -> None:
    """Functions in .init.text are text as well, though their segment may be written."""
    image = fentry_kernel()
    at = X86 + 0x30000
    flags = SHF_ALLOC | SHF_EXECINSTR
    image.sections.append(Section(".init.text", call32(at, X86 + 8), at, flags=flags))
    image.segments.append(Segment((".init.text",), 7))
    words = [*words_of(image)[:-1], at]
    rows: list[dict[str, Any]] = check(put_words(image, words), tmp_path).json
    assert [row["invariant"] for row in rows] == ["record-lost"], "of the one left out"
