# SPDX-License-Identifier: MIT
"""Kernels as they are installed, looked at: every container tells what the file inside tells."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.boot_images import bzimage
from tests.support.boot_kernels import NAMES, TABLES, Stripped, relocs
from tests.support.boxes import ELF_BOXES, FEW, IMAGE_BOXES, PACKERS, Box, sized
from tests.support.command import Result, ftpatch
from tests.support.kallsyms_writer import LAYOUTS, Layout
from tests.support.raw_kernels import FORMS, raw_kernel

LAYOUT = LAYOUTS[7]
BOXES = [*ELF_BOXES.values(), *IMAGE_BOXES.values()]
few_boxes = pytest.mark.parametrize(
    "box", [b for b in BOXES if b.name in FEW], ids=lambda b: b.name
)
every_box = pytest.mark.parametrize("box", BOXES, ids=lambda b: b.name)
every_table = pytest.mark.parametrize("arranged", TABLES)
# As scripts/Makefile.lib calls the packers.
TOOLS = {
    "gzip": ["gzip", "-n", "-9"],
    "bzip2": ["bzip2", "-9"],
    "lzma": ["xz", "--format=lzma", "-9"],
    "xz": ["xz", "--check=crc32", "--x86", "--lzma2=dict=32MiB"],
    "lz4": ["lz4", "-l", "-9", "-"],
    "zstd": ["zstd", "-22", "--ultra"],
}


def _inside(box: Box) -> bytes:
    """A kernel for a box, which another command has changed already."""
    if box.name in ELF_BOXES:
        return Stripped().build()
    return bytes(raw_kernel("arm64-relr", nulls=3).data)


def _put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _pair(folder: Path, box: Box, inside: bytes) -> tuple[Path, Path]:
    """The file in its box, and the same without."""
    return _put(folder, box.name, box.pack(inside)), _put(folder, "plain", inside)


def _same(boxed: Result, plain: Result) -> list[dict[str, object]]:
    """The objects of both, which must be the same but for path and container."""
    assert (boxed.code, boxed.err) == (plain.code, plain.err)
    rows = [[json.loads(line) for line in result.out.splitlines()] for result in (boxed, plain)]
    for row in (*rows[0], *rows[1]):
        row.pop("path", None)
        row.pop("container", None)
    assert rows[0] == rows[1]
    return rows[0]


@every_box
def test_status(box: Box, tmp_path: Path) -> None:
    path, plain = _pair(tmp_path, box, _inside(box))
    result = ftpatch("status", "--json", path)
    (row,) = _same(result, ftpatch("status", "--json", plain))
    assert result.only["path"] == str(path) and result.only["container"] == box.container
    assert row["sites"] == row["records"] - row["null"] > 300  # type: ignore[operator]
    text = ftpatch("status", path).out.splitlines()
    assert text[0] == f"{path}: {row['arch']} {box.container}, table __mcount_loc"
    assert text[1:] == ftpatch("status", plain).out.splitlines()[1:]


@few_boxes
def test_list_and_check(box: Box, tmp_path: Path) -> None:
    path, plain = _pair(tmp_path, box, _inside(box))
    assert len(_same(ftpatch("list", "--json", path), ftpatch("list", "--json", plain))) > 300
    few = ["-f", "vfs_*"]
    assert len(_same(ftpatch("list", "--json", path, *few), ftpatch("list", "--json", plain, *few)))
    assert ftpatch("list", path).out == ftpatch("list", plain).out
    assert _same(ftpatch("check", "--json", path), ftpatch("check", "--json", plain)) == []
    said = ftpatch("check", path).out.replace(str(path), "X")
    assert said == ftpatch("check", plain).out.replace(str(plain), "X") and "no ftrace bug" in said


@few_boxes
def test_what_a_command_did_is_seen_through_the_box(box: Box, tmp_path: Path) -> None:
    """A patched kernel that someone packed again, with its journal."""
    plain = _put(tmp_path, "before", _inside(box))
    patched = tmp_path / "plain"
    assert ftpatch("enable", plain, "-f", "vfs_*", "-o", patched).code == 0
    path = _put(tmp_path, box.name, box.pack(patched.read_bytes()))
    (row,) = _same(ftpatch("status", "--json", path), ftpatch("status", "--json", patched))
    assert row["dropped"] == 2 and "ftrace_caller" in row["targets"]  # type: ignore[operator]
    for words in ([], ["--stat"], ["--json"]):
        by_journal = ftpatch("diff", path, *words)
        assert by_journal.code == 1 and by_journal.out == ftpatch("diff", patched, *words).out
        between = ftpatch("diff", plain, path, *words)
        assert between.code == 1 and "journal" in between.out
        if not words:  # it has a further table, of the journal
            assert between.out.startswith(by_journal.out)
    assert ftpatch("diff", path, patched).out == "nothing differs\n"


@every_table
@pytest.mark.parametrize(
    "layout", [LAYOUT, LAYOUTS[2], LAYOUTS[-1]], ids=lambda layout: layout.name
)
def test_a_stripped_kernel_reads_as_the_one_with_symbols(
    arranged: str, layout: Layout, tmp_path: Path
) -> None:
    made = Stripped(layout, arranged=TABLES[arranged])
    boxed = _put(tmp_path, "vmlinuz", bzimage(sized("zstd", made.build())))
    twin = _put(tmp_path, "vmlinux", made.with_symbols())
    (row,) = _same(ftpatch("status", "--json", boxed), ftpatch("status", "--json", twin))
    assert (row["records"], row["null"]) == (len(made.table), made.table.count(0))
    rows = ftpatch("list", "--json", boxed).json
    for one, other in zip(rows, ftpatch("list", "--json", twin).json, strict=True):
        assert one.pop("offset") and other.pop("offset") and one == other
    # And both as it was made.
    assert [int(row["ip"], 16) for row in rows] == [record for record in made.table if record]
    assert {int(row["ip"], 16): row["symbol"] for row in rows} == made.sites
    assert _same(ftpatch("check", "--json", boxed), ftpatch("check", "--json", twin)) == []


@every_table
@pytest.mark.parametrize("layout", [LAYOUT, None], ids=["names", "nameless"])
def test_a_table_that_nothing_names_is_found(
    arranged: str, layout: Layout | None, tmp_path: Path
) -> None:
    """Nulls before its first record are not seen: nothing tells them from what is before."""
    made = Stripped(layout, bounds=False, arranged=TABLES[arranged])
    behind = relocs([made.start + 8 * i for i in range(len(made.table))])
    path = _put(tmp_path, "vmlinuz", bzimage(sized("xz", made.build() + behind)))
    row = ftpatch("status", "--json", path).only
    words = made.table[7:] if arranged == "nulls-in-front" else made.table
    assert (row["records"], row["null"], row["sites"]) == (len(words), words.count(0), 309)
    callee = "__fentry__" if layout else hex(made.helpers["__fentry__"])
    assert row["targets"] == {callee: 309}
    rows = ftpatch("list", "--json", path).json
    assert [int(row["ip"], 16) for row in rows] == [record for record in made.table if record]
    assert {row["symbol"] for row in rows} == (set(made.sites.values()) if layout else {""})
    assert ftpatch("check", path).code == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("nulls", [0, 5])
def test_an_image(form: str, nulls: int, tmp_path: Path) -> None:
    made = raw_kernel(form, nulls=nulls)
    path = _put(tmp_path, "Image", bytes(made.data))
    row = ftpatch("status", "--json", path).only
    counts = (row["container"], row["records"], row["null"], row["sites"])
    assert counts == ("Image", len(made.records), 2 * nulls, len(made.sites))
    assert row["states"] == {"nop": len(made.sites), "call": 0, "unexpected": 0}
    rows = ftpatch("list", "--json", path).json
    # arm64's ip is that of the second NOP, as is riscv64's with CALL_OPS.
    into = 4 if form.startswith("arm64") or form.endswith("callops") else 0
    assert {int(row["ip"], 16) - into: row["symbol"] for row in rows} == made.sites
    assert {int(row["ip"], 16) - row["offset"] for row in rows} == {made.base}
    assert (ftpatch("check", path).code, ftpatch("check", "--json", path).out) == (0, "")


def test_check_finds_what_is_wrong_inside(tmp_path: Path) -> None:
    made = Stripped()
    data = made.build()
    read = next(at for at, name in made.sites.items() if name == "vfs_read")
    at = data.index(struct.pack("<QQ", *made.table[:2]))
    broken = data[:at] + struct.pack("<Q", read + 5) + data[at + 8 :]
    for name in ELF_BOXES.keys() & FEW:
        path = _put(tmp_path, name, ELF_BOXES[name].pack(broken))
        result = ftpatch("check", "--json", path)
        assert result.code == 1
        assert [(row["invariant"], row["symbol"]) for row in result.json] == [
            ("record-lost", "vfs_read+0x0"),
            ("site-known", "vfs_read+0x5"),
            ("ftrace_init", "vfs_read+0x5/0x20"),
        ]
        assert {row["path"] for row in result.json} == {str(path)}
        assert ftpatch("check", path).code == 1 and "[ ftrace bug ]" in ftpatch("check", path).out


def test_diff_of_two_kernels(tmp_path: Path) -> None:
    """A bzImage of one build against an ELF file, and against another kernel."""
    data = Stripped().build()
    one = _put(tmp_path, "one", bzimage(sized("gzip", data)))
    for kind in PACKERS:
        other = _put(tmp_path, "other", bzimage(sized(kind, data)))
        assert ftpatch("diff", one, other).out == "nothing differs\n"
    changed = data[:-1] + bytes([data[-1] ^ 1])
    assert ftpatch("diff", one, _put(tmp_path, "other", bzimage(sized("xz", changed)))).code == 1
    without = Stripped(arranged=lambda sites: sites[5:]).build()
    result = ftpatch("diff", "--json", one, _put(tmp_path, "o", bzimage(sized("lz4", without))))
    assert (result.code, result.err) == (1, "")
    gone = [row["symbol"] for row in result.json if row["kind"] == "removed"]
    assert gone == [f"{name}+0x0" for name in NAMES[:5]]


@pytest.mark.parametrize("part", [b"\x1b[3m", b"\n\rx\t", b"\xff\xfe[/"], ids=repr)
def test_names_that_a_terminal_would_obey(part: bytes, tmp_path: Path) -> None:
    """They are a kernel's own, which are bytes of the file as any other."""
    data = Stripped().build()
    assert data.count(b"sys_\0") == 2, "two tokens have this part"
    path = _put(tmp_path, "vmlinuz", bzimage(sized("zstd", data.replace(b"sys_\0", part + b"\0"))))
    assert ftpatch("status", "--json", path).only["sites"] == 309
    found = ftpatch("list", path)
    assert found.code == 0 and len(found.out.splitlines()) == 310
    assert not re.search(r"[^\n -~]", found.out) and "\\x" in found.out.replace("\\n", "\\x")
    (row,) = ftpatch("list", "--json", path, "-f", "0xffffffff81001080").json
    assert row["symbol"].startswith("__x64_") and row["symbol"].endswith("read")


@pytest.mark.parametrize("kind", TOOLS)
def test_as_the_packers_own_tools_pack(kind: str, tmp_path: Path) -> None:
    if shutil.which(TOOLS[kind][0]) is None:
        pytest.skip(f"{TOOLS[kind][0]} is not installed")
    data = Stripped().build()
    stream = subprocess.run(TOOLS[kind], input=data, check=True, capture_output=True).stdout
    tail = b"" if kind == "gzip" else struct.pack("<I", len(data))
    for whole in (bzimage(stream + tail), stream):
        path = _put(tmp_path, "vmlinuz", whole)
        assert ftpatch("status", "--json", path).only["sites"] == 309
        assert ftpatch("extract", path, "-o", tmp_path / "out", "--force").code == 0
        assert (tmp_path / "out").read_bytes() == data
