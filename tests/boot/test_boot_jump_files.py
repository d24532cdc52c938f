# SPDX-License-Identifier: MIT
"""Probes that jumps lead to, in a small kernel: what is refused, by which table, and undone."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.boot_small import BASE, bootable
from tests.support.command import ftpatch
from tests.support.elf_writer import PF_R, PF_W, SHF_ALLOC, SHF_WRITE, Section, Segment, Symbol
from tests.support.images import section

CODE = bytes.fromhex("55 4889e5 89f8 83c001 488d0407 5d c3")
"""push %rbp; mov %rsp, %rbp | +4: mov %edi, %eax; +6: add $1, %eax | +9: lea; +d: pop; ret."""
AT = 4
TABLES = BASE + 0x60000
HEAD = "no jump at jumped+0x4: "
ELSEWHERE = 0x100
"""Of the text: where nothing is asked."""


def _near(place: int, own: int) -> bytes:
    return struct.pack("<i", place - own)


def _kernel(rows: dict[str, tuple[str, bytes]], code: bytes = CODE, low: int = 0) -> bytes:
    """A kernel with a function that has no site, and tables: (name of the end, bytes) by the name
    of their start. ``low``: an area of text begins there in the function."""
    image = bootable(8192)
    text = section(image, ".text")
    at = BASE + text.data.index(b"\xcc" * 1024)
    into = at - BASE
    text.data = text.data[:into] + code + text.data[into + len(code) :]
    held = b""
    rows = {"__start___ex_table": ("__stop___ex_table", b""), **rows}
    for name, (end, data) in rows.items():
        image.symbols.append(Symbol(name, TABLES + len(held), type=0, section=".tables"))
        held += data
        image.symbols.append(Symbol(end, TABLES + len(held), type=0, section=".tables"))
    names = {s.name for s in image.symbols}
    image.symbols += [
        Symbol(name, value, type=0)
        for name, value in (("_text", BASE), ("_stext", BASE), ("_end", TABLES + 0x1000))
        if name not in names
    ]
    image.symbols.append(Symbol("jumped", at, len(code)))
    image.sections.append(Section(".tables", held + bytes(64), TABLES, flags=SHF_ALLOC | SHF_WRITE))
    image.segments.append(Segment((".tables",), PF_R | PF_W))
    return image.build()


def _place() -> int:
    text = section(bootable(8192), ".text").data
    return BASE + text.index(b"\xcc" * 1024) + AT


def _tables() -> list[tuple[dict[str, tuple[str, bytes]], str]]:
    at, other = _place(), BASE + ELSEWHERE
    near, far = _near(at, TABLES), _near(other, TABLES)
    key = struct.pack("<q", 0)
    into = _near(at + 2, TABLES + 4)
    return [
        (
            {
                "__start___jump_table": (
                    "__stop___jump_table",
                    near + _near(other, TABLES + 4) + key,
                )
            },
            "a static key's branch (__jump_table) is there",
        ),
        (
            {"__start___jump_table": ("__stop___jump_table", far + into + key)},
            "a branch of the kernel's own leads there",
        ),
        (
            {"__start___ex_table": ("__stop___ex_table", near + bytes(8))},
            "an instruction that may fault (__ex_table) is there",
        ),
        (
            {"__start___ex_table": ("__stop___ex_table", far + into + bytes(4))},
            "a branch of the kernel's own leads there",
        ),
        (
            {"__start___bug_table": ("__stop___bug_table", near + bytes(8))},
            "a BUG or a WARN (__bug_table) is there",
        ),
        (
            # its length reaches from before the instruction into it
            {
                "__alt_instructions": (
                    "__alt_instructions_end",
                    _near(at - 3, TABLES) + bytes(8) + b"\4\0",
                )
            },
            "an alternative (.altinstructions) is there",
        ),
        (
            {"__parainstructions": ("__parainstructions_end", struct.pack("<QBB6x", at, 1, 5))},
            "a paravirt call (.parainstructions) is there",
        ),
        *(
            ({begin: (begin + "_end", near)}, f"({name}) is there")
            for begin, name in (
                ("__retpoline_sites", ".retpoline_sites"),
                ("__return_sites", ".return_sites"),
                ("__call_sites", ".call_sites"),
                ("__smp_locks", ".smp_locks"),
                ("__ibt_endbr_seal", ".ibt_endbr_seal"),
                ("__cfi_sites", ".cfi_sites"),
            )
        ),
        (
            {"__start_static_call_sites": ("__stop_static_call_sites", near + bytes(4))},
            "a static call (.static_call_sites) is there",
        ),
        (
            {"__start_kprobe_blacklist": ("__stop_kprobe_blacklist", struct.pack("<Q", at - AT))},
            "its function is on kprobes' blacklist",
        ),
        (
            {"__start___bug_table": ("__stop___bug_table", bytes(12))},
            "the form of its table __bug_table is unknown",
        ),
    ]


@pytest.mark.parametrize("number", range(len(_tables())))
def test_what_the_kernel_changes_or_looks_up(tmp_path: Path, number: int) -> None:
    rows, said = _tables()[number]
    path, out = tmp_path / "vmlinux", tmp_path / "out"
    path.write_bytes(_kernel(rows))
    done = ftpatch("probe", path, "p:x jumped+4", "-o", out)
    assert done.code == 2 and said in done.err and not out.exists(), done.err
    if "blacklist" not in said and "unknown" not in said and "alternative" not in said:
        assert ftpatch("probe", path, "p:x jumped+9", "-o", out).code == 0
        free = {name: (end, data.replace(_near(_place(), TABLES), _near(BASE + 8, TABLES)))
                for name, (end, data) in rows.items()}  # fmt: skip
        if free != rows:
            path.write_bytes(_kernel(free))
            assert ftpatch("probe", path, "p:x jumped+4", "-o", out, "--force").code == 0


@pytest.mark.parametrize(
    ("code", "word", "said"),
    [
        (CODE, "p:x jumped+5", "is not at an instruction boundary"),
        (CODE, "p:x jumped+0xd", "the function ends within the bytes to displace"),
        (CODE, "p:x vfs_read+0x1", "is not at an instruction boundary"),
        (CODE, "p:x jumped+4 $arg1", "$argN can be used only on function entry"),
        (CODE[:9] + bytes.fromhex("75fb") + CODE[11:], "p:x jumped+4", "a branch may target"),
        (CODE[:4] + bytes.fromhex("ff e0") + CODE[6:], "p:x jumped+9", "an indirect jump"),
        (CODE[:4] + bytes.fromhex("48c7c700000281") + CODE[4:], "p:x jumped+4", "KASLR relocates"),
        (CODE[:4] + bytes.fromhex("8b3c8500000281") + CODE[4:], "p:x jumped+4", "KASLR relocates"),
        (CODE[:4] + bytes.fromhex("bf00000201") + CODE[4:], "p:x jumped+4", "KASLR relocates"),
        (
            CODE[:4] + bytes.fromhex("65488b3d00000010") + CODE[4:],
            "p:x jumped+4",
            "KASLR relocates an operand of movq",
        ),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, code: bytes, word: str, said: str) -> None:
    path, out = tmp_path / "vmlinux", tmp_path / "out"
    path.write_bytes(_kernel({}, code))
    done = ftpatch("probe", path, word, "-o", out)
    assert done.code == 2 and said in done.err and not out.exists(), done.err


def test_they_are_listed_checked_and_undone(tmp_path: Path) -> None:
    path, out = tmp_path / "vmlinux", tmp_path / "out"
    path.write_bytes(_kernel({}))
    before = path.read_bytes()
    words = ("p:in jumped+4 a=%rax", "p:at jumped $arg1", "r:out vfs_read", "p:on vfs_write+6")
    done = ftpatch("probe", path, *words[:1], words[2], "-o", out, "--json")
    assert done.code == 0, done.err
    assert [row["way"] for row in done.json if "way" in row] == ["pad", "jump"]
    at = _place()
    raw, where = out.read_bytes(), before.index(CODE)
    assert raw[where + AT] == 0xE9 and raw[where + AT + 5 :][:6] == CODE[AT + 5 :]
    assert ftpatch("check", out).code == 0
    held = ftpatch("probe", out, "--json").json
    assert [(row["ip"], row["way"]) for row in held][-1] == (hex(at), "jump")
    text = ftpatch("diff", path, out).out
    assert "jumped+0x4" in text, text
    damaged = bytearray(raw)
    damaged[where + AT + 1] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    found = ftpatch("check", tmp_path / "damaged", "--json").json
    said = [row["message"] for row in found if row.get("invariant") == "probe-called"]
    assert said == ["no jump leads to the code of the probe in"]
    assert ftpatch("undo", out).code == 0 and out.read_bytes() == before


def test_an_entry_without_a_site(tmp_path: Path) -> None:
    path, out = tmp_path / "vmlinux", tmp_path / "out"
    path.write_bytes(_kernel({}))
    words = ("p:a jumped n=$arg1", "r:b jumped ret=$retval", "p:c jumped+9")
    done = ftpatch("probe", path, *words, "-o", out)
    assert done.code == 0 and done.out.count(" jump ") == 3, done.err
    near = ftpatch("probe", path, "p:a jumped+4", "p:b jumped+6", "-o", tmp_path / "none")
    assert near.code == 2 and "another probe is too close" in near.err, near.err
