"""One image for each kind of breakage: each is found, by its name, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .command import Result, ftpatch
from .elf_writer import SHF_ALLOC, SHF_EXECINSTR, Image, Section, Segment
from .images import (
    FUNCTIONS,
    arm64_callops_kernel,
    arm64_rela_kernel,
    arm64_relr_kernel,
    call32,
    fentry_kernel,
    pad_program,
    section,
    symbols_at,
)
from .samples import SAMPLES, Sample
from .tables import rela

X86, ARM64, PROGRAM = 0xFFFF_FFFF_8100_0000, 0xFFFF_8000_8001_0000, 0x40_1000
P6 = bytes.fromhex("0f1f440000")


def _words(image: Image, name: str = ".init.data") -> list[int]:
    data = section(image, name).data
    return [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]


def _set_words(image: Image, words: list[int], name: str = ".init.data") -> Image:
    section(image, name).data = image.table(words)
    return image


def _code(image: Image, at: int, code: bytes) -> Image:
    """Other bytes at an address of .text."""
    text = section(image, ".text")
    offset = at - text.address
    text.data = text.data[:offset] + code + text.data[offset + len(code) :]
    return image


def _check(image: Image, folder: Path) -> Result:
    path = folder / "image"
    path.write_bytes(image.build())
    result = ftpatch("check", "--json", path)
    assert result.code == (1 if result.out else 0) and not result.err
    return result


def _found(image: Image, folder: Path) -> list[tuple[str, int, str]]:
    return [(r["invariant"], int(r["ip"], 16), r["symbol"]) for r in _check(image, folder).json]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_samples_are_clean(sample: Sample) -> None:
    result = ftpatch("check", "--json", sample.path)
    if sample.name == "libfentry.so":
        assert result.code == 1, "check of what parses never ends with 2"
        return
    assert (result.code, result.out, result.err) == (0, "", "")


@pytest.mark.parametrize(
    "make",
    [fentry_kernel, pad_program, arm64_rela_kernel, arm64_relr_kernel, arm64_callops_kernel],
)
def test_made_images_are_clean(make: Callable[[], Image], tmp_path: Path) -> None:
    assert _found(make(), tmp_path) == []


def test_a_record_twice(tmp_path: Path) -> None:
    """In a kernel the second meets what ftrace_init made of the first."""
    at = symbols_at(X86)["vfs_write"]
    image = fentry_kernel()
    words = _words(image)
    assert words[1] == at
    _set_words(image, [words[0], at, at, *words[3:]])
    assert _found(image, tmp_path) == [
        ("record-unique", at, "vfs_write+0x0"),
        ("ftrace_init", at, "vfs_write+0x0/0x40"),
    ]
    assert _check(image, tmp_path).json[1]["bug"].splitlines() == [
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
    words = _words(image, name)
    _set_words(image, [*words, words[2]], name)
    assert _found(image, tmp_path) == [("record-unique", words[2], "do_exit+0x0")]


def test_a_record_in_data(tmp_path: Path) -> None:
    """A kernel without null records does not look where a record points before it reads."""
    data = X86 + 0x10000
    image = fentry_kernel()
    _set_words(image, [*_words(image)[:-1], data])
    found = _found(image, tmp_path)
    assert [row[:2] for row in found] == [("record-in-text", data), ("ftrace_init", data)]


def test_a_record_in_data_is_skipped_by_a_kernel_that_knows_nulls(tmp_path: Path) -> None:
    data = X86 + 0x10000
    image = fentry_kernel(nulls=1)
    _set_words(image, [*_words(image)[:-1], data])
    assert [row[:2] for row in _found(image, tmp_path)] == [("record-in-text", data)]


def test_a_record_outside_of_everything(tmp_path: Path) -> None:
    image = fentry_kernel()
    _set_words(image, [*_words(image)[:-1], 0xFFFF_FFFF_F000_0000])
    rows = _check(image, tmp_path).json
    assert [row["invariant"] for row in rows] == ["record-in-text", "ftrace_init"]
    lines = rows[1]["bug"].splitlines()
    assert lines[1] == "ftrace faulted on modifying" and lines[-1].startswith("Initializing")
    assert len(lines) == 4, "what cannot be read is not shown"


def test_a_record_that_is_not_aligned(tmp_path: Path) -> None:
    image = arm64_relr_kernel()
    words = _words(image)
    _set_words(image, [*words[:2], words[2] + 2, *words[3:]])
    found = [row[0] for row in _found(image, tmp_path)]
    assert "record-aligned" in found and "ftrace_init" in found
    assert not {"record-unique", "record-in-text", "record-sorted", "site-overlap"} & set(found)


def test_records_out_of_order(tmp_path: Path) -> None:
    names = tuple(f"function_{i:02}" for i in range(40))
    image = fentry_kernel(names)
    words = _words(image)
    words[10], words[11] = words[11], words[10]
    _set_words(image, words)
    assert _found(image, tmp_path) == [("record-sorted", words[11], "function_10+0x0")]


def test_order_is_no_rule_where_relocations_fill_the_table(tmp_path: Path) -> None:
    image = arm64_rela_kernel()
    at = section(image, ".init.data").address
    values = list(reversed(symbols_at(ARM64).values()))
    rows = [(at + 8 * i, 1027, 0, value) for i, value in enumerate(values)]
    section(image, ".rela.dyn").data = rela(image, rows)
    assert _found(image, tmp_path) == []


def test_sites_that_share_bytes(tmp_path: Path) -> None:
    image = pad_program(b"\x90" * 8)
    name = "__patchable_function_entries"
    words = _words(image, name)
    _set_words(image, [*words, words[0] + 3], name)
    assert _found(image, tmp_path) == [("site-overlap", words[0] + 3, "vfs_read+0x3")]


@pytest.mark.parametrize("code", [b"\xcc" * 5, bytes.fromhex("0f1f440001"), b"\xe9" + bytes(4)])
def test_bytes_that_are_neither_nop_nor_call(code: bytes, tmp_path: Path) -> None:
    at = symbols_at(PROGRAM)["schedule"]
    image = _code(pad_program(), at, code)
    assert _found(image, tmp_path) == [("site-known", at, "schedule+0x0")]
    assert code.hex(":") in _check(image, tmp_path).only["message"]


def test_a_call_of_something_else(tmp_path: Path) -> None:
    at, target = symbols_at(PROGRAM)["schedule"], symbols_at(PROGRAM)["vfs_read"]
    image = _code(pad_program(), at, call32(at, target))
    assert _found(image, tmp_path) == [("site-target", at, "schedule+0x0")]
    assert "calls vfs_read," in _check(image, tmp_path).only["message"]
    image = _code(pad_program(), at, call32(at, PROGRAM + 16))
    assert _found(image, tmp_path) == [], "ftrace_caller is the image's own"


def _bug(image: Image, folder: Path) -> list[str]:
    rows = [row for row in _check(image, folder).json if row["invariant"] == "ftrace_init"]
    assert len(rows) == 1
    text = ftpatch("check", folder / "image").out.splitlines()
    bug: list[str] = rows[0]["bug"].splitlines()
    assert text[text.index(bug[0]) :][: len(bug)] == bug, "the text says it in the same lines"
    assert text[-1].endswith("one ftrace bug")
    return bug


def test_ftrace_bug_of_a_nop(tmp_path: Path) -> None:
    at = symbols_at(X86)["vfs_read"]
    assert _bug(_code(fentry_kernel(), at, P6), tmp_path) == [
        "------------[ ftrace bug ]------------",
        "ftrace failed to modify",
        "[<ffffffff81000040>] vfs_read+0x0/0x40",
        " actual:   0f:1f:44:00:00",
        " expected: e8:c3:ff:ff:ff",
        "Initializing ftrace call sites",
    ]


def test_ftrace_bug_of_arm64_shows_one_word_and_expects_nothing(tmp_path: Path) -> None:
    at = symbols_at(ARM64)["do_exit"]
    bl = bytes.fromhex("e9031eaa") + (0x94000000 | (ARM64 + 16 - at - 4) // 4 & 0x3FFFFFF).to_bytes(
        4, "little"
    )
    assert _bug(_code(arm64_rela_kernel(), at, bl), tmp_path) == [
        "------------[ ftrace bug ]------------",
        "ftrace failed to modify",
        "[<ffff8000800100c4>] do_exit+0x4/0x40",
        " actual:   d3:ff:ff:97",
        "Initializing ftrace call sites",
    ]


def test_only_the_first_refusal_is_reported(tmp_path: Path) -> None:
    """ftrace_init stops there; which is first is decided by address, not by the table."""
    image = fentry_kernel()
    for name in ("schedule", "vfs_write"):
        _code(image, symbols_at(X86)[name], P6)
    _set_words(image, list(reversed(_words(image))))
    assert "vfs_write" in _bug(image, tmp_path)[2]


@pytest.mark.parametrize("nulls", [0, 3])
def test_entries_are_counted_as_the_kernel_prints_them(nulls: int, tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(fentry_kernel(nulls=nulls).build())
    out = ftpatch("check", path).out.splitlines()
    assert out == [
        f"{path}: ftrace: allocating {len(FUNCTIONS)} entries, no ftrace bug",
        f"{path}: every invariant holds",
    ]


def test_findings_are_counted_over_all_images(tmp_path: Path) -> None:
    good, bad, broken = (tmp_path / name for name in ("good", "bad", "broken"))
    good.write_bytes(pad_program().build())
    bad.write_bytes(_code(pad_program(), PROGRAM + 64, b"\xcc").build())
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
    words = [*_words(image)[:-1], at]
    rows: list[dict[str, Any]] = _check(_set_words(image, words), tmp_path).json
    assert rows == []
