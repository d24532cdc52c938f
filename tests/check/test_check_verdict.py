# SPDX-License-Identifier: MIT
"""What becomes of a kernel: it boots and ftrace works, ftrace will be off, or it will not boot; and
the named sites inside ftrace_caller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.broken import check, put_code, put_words, words_of
from tests.support.command import ftpatch
from tests.support.elf_writer import Image
from tests.support.images import arm64_callops_kernel, fentry_kernel, symbols_at

X86, ARM64 = 0xFFFF_FFFF_8100_0000, 0xFFFF_8000_8001_0000
P6, BL = bytes.fromhex("0f1f440000"), bytes.fromhex("00000094")


def _verdict(image: Image, folder: Path) -> tuple[str, str, set[str]]:
    """By the text, by JSON (empty where nothing is found), and the invariants that are broken."""
    rows = check(image, folder).json
    text = ftpatch("check", folder / "image").out
    (line,) = (line for line in text.splitlines() if ": verdict: " in line)
    (value,) = {row["verdict"] for row in rows} or {""}
    return line.partition(": verdict: ")[2], value, {row["invariant"] for row in rows}


def _shifted(image: Image, name: str, by: int, base: int = ARM64, before: int = 8) -> Image:
    """The record of a function, so many bytes off."""
    words = words_of(image)
    words[words.index(symbols_at(base)[name] - before)] += by
    return put_words(image, words)


def test_it_boots(tmp_path: Path) -> None:
    words = ("boots and ftrace works", "", set[str]())
    assert _verdict(fentry_kernel(), tmp_path) == words
    assert _verdict(arm64_callops_kernel(), tmp_path) == words


def test_ftrace_will_be_off(tmp_path: Path) -> None:
    image = put_code(fentry_kernel(), symbols_at(X86)["vfs_read"], P6)
    assert _verdict(image, tmp_path) == ("ftrace will be off", "ftrace-off", {"ftrace_init"})


def test_a_record_four_bytes_off_kills_arm64(tmp_path: Path) -> None:
    """As 7.3's and 6.12's: call_adjust makes null of it, which was tested before."""
    image = _shifted(arm64_callops_kernel(), "do_exit", 4)
    words, value, broken = _verdict(image, tmp_path)
    assert (words, value) == ("the kernel will not boot", "dies")
    assert broken == {"record-aligned", "record-lost", "ftrace_init"}
    result = ftpatch("check", tmp_path / "image")
    assert result.code == 1
    assert (
        "ftrace_init: 0xffff8000800100bc vfs_write+0x3c: the kernel will crash on this record"
        in result.out
    )
    assert "BUG_ON(!page) in patch_map()" in result.out
    assert "no ftrace bug" not in result.out and "[ ftrace bug ]" not in result.out
    junit = ftpatch("check", "--format", "junit", tmp_path / "image").out
    assert '<property name="verdict" value="dies"' in junit


def test_a_kernel_that_tests_null_afterwards_skips_it(tmp_path: Path) -> None:
    """6.3 to 6.14 (Misaligned patch-site, a warning): a table without nulls is theirs."""
    image = _shifted(arm64_callops_kernel(nulls=0), "do_exit", 4)
    words, value, broken = _verdict(image, tmp_path)
    assert (words, value) == ("boots and ftrace works, apart from the findings above", "boots")
    assert broken == {"record-aligned", "record-lost"}


@pytest.mark.parametrize(("first", "verdict"), [("vfs_read", "ftrace-off"), ("schedule", "dies")])
def test_the_first_of_two_decides(first: str, verdict: str, tmp_path: Path) -> None:
    """ftrace_init stops at the first that it refuses, and lives on; records come by address."""
    image = _shifted(arm64_callops_kernel(), "do_exit", 4)
    at = symbols_at(ARM64)[first]
    assert _verdict(put_code(image, at, BL), tmp_path)[1] == verdict


def test_a_record_of_nothing_kills_what_reads_it_first(tmp_path: Path) -> None:
    """call_adjust of CALL_OPS reads at all records before any site is compared; without CALL_OPS
    it is refused as any other."""
    image = arm64_callops_kernel(nulls=0)
    words = words_of(image)
    put_words(image, [*words[:-1], 0x1000])
    at = symbols_at(ARM64)["vfs_read"]
    assert _verdict(put_code(image, at, BL), tmp_path)[1] == "dies"
    skips = arm64_callops_kernel()  # it looks whether that is text first
    put_words(skips, [*words_of(skips)[:-1], 0x1000])
    assert _verdict(skips, tmp_path)[1] != "dies"
    image = fentry_kernel()
    put_words(image, [0x1000, *words_of(image)[1:]])
    assert _verdict(image, tmp_path)[1] == "ftrace-off"


def test_riscv64_writes_without_a_look(copy_of: Callable[[str], Path]) -> None:
    path = copy_of("vmlinux-riscv64")
    row = next(r for r in ftpatch("list", "--json", path).json if r["symbol"] == "vfs_read")
    data, record = path.read_bytes(), int(row["ip"], 16).to_bytes(8, "little")
    assert data.count(record) >= 1
    path.write_bytes(data.replace(record, (0x1000).to_bytes(8, "little")))
    result = ftpatch("check", path)
    assert result.code == 1 and ": verdict: the kernel will not boot\n" in result.out
    assert "ftrace_init_nop writes there unchecked" in result.out


def _not_at_rest(path: Path) -> list[str]:
    rows = [
        r for r in ftpatch("check", "--json", path).json if r.get("invariant") == "gate-at-rest"
    ]
    return [row["message"] for row in rows]


def _overwrite(path: Path, name: str, code: bytes) -> None:
    """Other bytes at a symbol (pyelftools)."""
    with path.open("r+b") as file:
        elf = ELFFile(file)
        (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(name)
        (at,) = elf.address_offsets(symbol["st_value"])
        file.seek(at)
        file.write(code)


@pytest.mark.parametrize(
    ("sample", "gate", "code", "said"),
    [
        ("vmlinux-x86_64", "ftrace_call", P6, "is 0f:1f:44:00:00"),
        ("vmlinux-x86_64", "ftrace_regs_call", b"\xe8\0\0\0\0", "goes to "),
        ("vmlinux-i386", "ftrace_graph_call", b"\xe8\0\0\0\0", "is e8:00:00:00:00"),
        ("vmlinux-i386", "ftrace_graph_call", b"\xe9\0\0\0\0", "goes to "),
        ("vmlinux-arm64", "ftrace_call", bytes.fromhex("1f2003d5"), "is 1f:20:03:d5"),
        ("vmlinux-riscv64", "ftrace_call", bytes.fromhex("1300000013000000"), "is 13:00:00:00:13"),
    ],
)
def test_a_named_site_that_is_not_at_rest(
    sample: str, gate: str, code: bytes, said: str, copy_of: Callable[[str], Path]
) -> None:
    path = copy_of(sample)
    assert _not_at_rest(path) == []
    _overwrite(path, gate, code)
    (message,) = _not_at_rest(path)
    assert message.startswith(f"{gate} {said}") and "ftrace_stub" in message
    assert ftpatch("check", path).code == 1


def test_a_named_site_that_ftpatch_set_is_as_journalled(
    copy_of: Callable[[str], Path],
) -> None:
    path = copy_of("vmlinux-x86_64")
    done = ftpatch("enable", path, "--in-place", "--site", "ftrace_call", "--to", "vfs_read")
    assert done.code == 0 and _not_at_rest(path) == []
    _overwrite(path, "ftrace_call", P6)
    assert len(_not_at_rest(path)) == 1
