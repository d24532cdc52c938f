# SPDX-License-Identifier: MIT
"""Where a site may be: not in code that must not be traced, and at the entry of its function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broken import found, put_code, put_words, words_of
from tests.support.command import ftpatch
from tests.support.elf_writer import SHF_ALLOC, SHF_EXECINSTR, Image, Section, Segment, Symbol
from tests.support.images import (
    STEP,
    arm64_callops_kernel,
    arm64_rela_kernel,
    call32,
    fentry_kernel,
    pad_program,
    section,
    symbols_at,
)
from tests.support.samples import sample

X86, ARM64, PROGRAM = 0xFFFF_FFFF_8100_0000, 0xFFFF_8000_8001_0000, 0x40_1000
ENDBR = bytes.fromhex("f30f1efa")  # endbr64
BTI = bytes.fromhex("5f2403d5")  # bti c
NOPS = bytes.fromhex("1f2003d5") * 2  # nop; nop
PADS = "__patchable_function_entries"


def _bounds(image: Image, start: str, end: str, at: int, size: int) -> Image:
    image.symbols += [Symbol(start, at, type=0), Symbol(end, at + size, type=0)]
    return image


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("__noinstr_text_start", "__noinstr_text_end", "noinstr"),
        ("__entry_text_start", "__entry_text_end", "entry code"),
        ("__static_call_text_start", "__static_call_text_end", "static call"),
        ("__indirect_thunk_start", "__indirect_thunk_end", "retpolines"),
        ("__hyp_text_start", "__hyp_text_end", "hypervisor"),
    ],
)
def test_a_site_in_a_notrace_section_of_a_kernel(
    start: str, end: str, words: str, tmp_path: Path
) -> None:
    at = symbols_at(X86)["do_exit"]
    image = _bounds(fentry_kernel(), start, end, at, STEP)
    assert found(image, tmp_path) == [("notrace-place", at, "do_exit+0x0")]
    assert words in ftpatch("check", tmp_path / "image").out
    assert found(_bounds(fentry_kernel(), start, end, at + 5, STEP - 5), tmp_path) == []


@pytest.mark.parametrize("name", ["__kprobes_text", "__cpuidle_text", "__sched_text"])
def test_sections_that_only_probes_and_stack_traces_leave_alone(name: str, tmp_path: Path) -> None:
    image = _bounds(fentry_kernel(), f"{name}_start", f"{name}_end", X86, 0x1000)
    assert found(image, tmp_path) == []


def test_a_program_may_call_its_symbols_as_it_likes(tmp_path: Path) -> None:
    start, end = "__noinstr_text_start", "__noinstr_text_end"
    assert found(_bounds(pad_program(), start, end, PROGRAM, 0x1000), tmp_path) == []


def test_a_site_in_what_sites_call(tmp_path: Path) -> None:
    """It would call itself, in a kernel and in a program."""
    for make, base in ((fentry_kernel, X86), (pad_program, PROGRAM)):
        at = symbols_at(base)["schedule"]
        image = make()
        image.symbols = [s for s in image.symbols if s.name != "ftrace_caller"]
        image.symbols.append(Symbol("ftrace_caller", at, STEP))
        rows = [row[:2] for row in found(image, tmp_path)]
        assert ("notrace-place", at) in rows
        assert {row[0] for row in rows} == {"notrace-place"}


def test_a_site_outside_of_the_kernel_s_text(tmp_path: Path) -> None:
    """.exit.text is executable, but neither between _stext and _etext nor in .init.text."""
    image = fentry_kernel()
    at = X86 + 0x40000
    image.sections.append(
        Section(".exit.text", call32(at, X86 + 8), at, flags=SHF_ALLOC | SHF_EXECINSTR)
    )
    image.segments.append(Segment((".exit.text",), 5))
    rows = found(put_words(image, [*words_of(image)[:-1], at]), tmp_path)
    last = list(symbols_at(X86).values())[-1]
    assert [row[:2] for row in rows] == [("record-lost", last), ("notrace-place", at)]


def test_a_kernel_that_does_not_say_where_its_text_ends(tmp_path: Path) -> None:
    image = fentry_kernel()
    image.symbols = [s for s in image.symbols if s.name != "_etext"]
    assert found(image, tmp_path) == []


def _deep(image: Image, base: int, code: bytes, far: int, back: int = 0) -> tuple[Image, int]:
    """A record for ``code`` that stands ``far`` bytes inside of schedule, ``back`` bytes off."""
    at = symbols_at(base)["schedule"] + far
    name = PADS if base == PROGRAM else ".init.data"
    words = words_of(put_code(image, at, code), name)
    index = words.index(symbols_at(base)["schedule"])
    words[index] = at - back
    return put_words(image, words, name), at


def test_a_record_in_the_middle_of_a_function(tmp_path: Path) -> None:
    at = symbols_at(X86)["schedule"] + 16
    image, at = _deep(fentry_kernel(), X86, call32(at, X86 + 8), 16)
    lost = ("record-lost", symbols_at(X86)["schedule"], "schedule+0x0")
    assert found(image, tmp_path) == [("record-in-function", at, "schedule+0x10"), lost]
    assert "16 bytes into a function of 64 bytes" in ftpatch("check", tmp_path / "image").out
    image, at = _deep(pad_program(), PROGRAM, b"\x90" * 5, 9)
    lost = ("record-lost", symbols_at(PROGRAM)["schedule"], "schedule+0x0")
    assert found(image, tmp_path) == [("record-in-function", at, "schedule+0x9"), lost]


def test_a_landing_pad_belongs_to_the_entry(tmp_path: Path) -> None:
    at = symbols_at(X86)["schedule"]
    image, at = _deep(fentry_kernel(), X86, call32(at + 4, X86 + 8), 4)
    assert found(image, tmp_path) == [("record-in-function", at, "schedule+0x4")]
    image = put_code(image, at - 4, ENDBR)
    assert found(image, tmp_path) == []


@pytest.mark.parametrize("make", [arm64_rela_kernel, arm64_callops_kernel])
def test_the_pair_of_arm64_begins_before_its_ip(make: Callable[[], Image], tmp_path: Path) -> None:
    assert found(make(), tmp_path) == []
    image = make()
    at = symbols_at(ARM64)["schedule"]
    for symbol in [s for s in image.symbols if s.value == at]:
        image.symbols.remove(symbol)
        image.symbols.append(Symbol("schedule", at - 16, STEP + 16))
    rows = found(image, tmp_path)
    assert rows == [("record-in-function", at + 4, "schedule+0x14")]


def test_a_body_without_a_symbol_is_no_finding(tmp_path: Path) -> None:
    """What is left of an overridden weak function lies behind the end of the one before it."""
    image = fentry_kernel()
    image.symbols = [s for s in image.symbols if s.name != "schedule"]
    assert found(image, tmp_path) == []
    before = next(s for s in image.symbols if s.name == "do_exit")
    image.symbols.remove(before)
    image.symbols.append(Symbol("do_exit", before.value, 2 * STEP))
    at = symbols_at(X86)["schedule"]
    assert found(image, tmp_path) == [("record-in-function", at, "do_exit+0x40")]


def test_symbols_without_a_size_are_no_functions(tmp_path: Path) -> None:
    image = fentry_kernel()
    at = symbols_at(X86)["schedule"]
    image.symbols = [s for s in image.symbols if s.name != "schedule"]
    for size, kind in ((0, 2), (STEP, 0), (STEP, 1)):
        label = Symbol("label", at - 8, size, kind)
        image.symbols.append(label)
        assert found(image, tmp_path) == []
        image.symbols.remove(label)


def test_calls_of_mcount_stand_behind_the_prologue(copy_of: Callable[[str], Path]) -> None:
    """That is their form; and so it was, where ftpatch has made NOPs of them."""
    path = copy_of("i386-mcount")
    assert ftpatch("check", "--json", path).out == ""
    assert ftpatch("disable", "--in-place", path).code == 0
    assert ftpatch("check", "--json", path).out == ""


def test_an_image_without_symbols(tmp_path: Path) -> None:
    for name in ("pad-stripped", "pad-noheaders"):
        assert ftpatch("check", "--json", sample(name).path).out == ""
    image = pad_program()
    image.symbols = []
    assert found(image, tmp_path) == []
    assert section(image, ".text").data
