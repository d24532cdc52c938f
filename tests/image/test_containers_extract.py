# SPDX-License-Identifier: MIT
"""extract: what lies inside is written, byte for byte, and can be changed."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.boot_images import bzimage
from tests.support.boot_kernels import Stripped, relocs
from tests.support.boxes import ELF_BOXES, FEW, IMAGE_BOXES, PACKERS, Box, sized
from tests.support.command import Result, ftpatch, ftpatch_as, ftpatch_process
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, signed
from tests.support.raw_kernels import raw_kernel

NOBODY = 65534
BOXES = [*ELF_BOXES.values(), *IMAGE_BOXES.values()]
few_boxes = pytest.mark.parametrize(
    "box", [b for b in BOXES if b.name in FEW], ids=lambda b: b.name
)
every_box = pytest.mark.parametrize("box", BOXES, ids=lambda b: b.name)
KERNEL = Stripped().build() + relocs([Stripped().start])


def _inside(box: Box) -> bytes:
    return KERNEL if box.name in ELF_BOXES else bytes(raw_kernel("arm64-rela", nulls=2).data)


def _put(folder: Path, name: str = "vmlinuz", data: bytes | None = None) -> Path:
    path = folder / name
    path.write_bytes(bzimage(sized("zstd", KERNEL)) if data is None else data)
    return path


def _refused(result: Result, words: str) -> None:
    assert result.code == 2, result
    assert words in result.err and result.err.count("\n") == 1 and not result.out
    assert result.err.startswith("ftpatch: ")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@every_box
def test_exactly_what_is_inside(box: Box, tmp_path: Path) -> None:
    inside = _inside(box)
    path = _put(tmp_path, box.name, box.pack(inside))
    before = path.read_bytes()
    result = ftpatch("extract", path)
    output = tmp_path / box.extracted
    assert result.code == 0 and not result.err
    assert result.out == (f"{', '.join(box.layers)}: {len(inside)} bytes\nwrote {output}\n")
    assert output.read_bytes() == inside and path.read_bytes() == before
    assert _names(tmp_path) == sorted([box.name, box.extracted])


@few_boxes
def test_where_it_is_told_to(box: Box, tmp_path: Path) -> None:
    inside, output = _inside(box), tmp_path / "out"
    path = _put(tmp_path, box.name, box.pack(inside))
    row = ftpatch("extract", "--json", path, "-o", output).only
    assert row == {"output": str(output), "layers": list(box.layers), "length": len(inside)}
    assert output.read_bytes() == inside
    quiet = ftpatch("extract", "-q", path, "-o", output, "--force")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert _names(tmp_path) == sorted([box.name, "out"])


@few_boxes
def test_what_was_extracted_can_be_changed(box: Box, tmp_path: Path) -> None:
    path = _put(tmp_path, box.name, box.pack(_inside(box)))
    file = tmp_path / "kernel"
    assert ftpatch("extract", path, "-o", file).code == 0
    before = file.read_bytes()
    assert ftpatch("enable", "--in-place", file, "-f", "vfs_*").code == 0
    enabled = file.read_bytes()
    assert ftpatch("disable", "--in-place", file, "-f", "vfs_read").code == 0
    assert "no ftrace bug" in ftpatch("check", file).out and ftpatch("check", file).code == 0
    rows = ftpatch("list", "--json", file, "-f", "vfs_*").json
    assert [(row["state"], row["target"]) for row in rows] == [
        ("nop", ""),
        ("call", "ftrace_caller"),
    ]
    assert ftpatch("diff", path, file).code == 1
    assert ftpatch("undo", file).code == 0 and file.read_bytes() == enabled
    assert ftpatch("disable", "--in-place", file).code == 0
    assert ftpatch("undo", "--all", file).code == 0 and file.read_bytes() == before
    assert ftpatch("diff", path, file).out == "nothing differs\n"


@pytest.mark.parametrize("journal", [False, True], ids=["", "journal"])
@pytest.mark.parametrize("name", ["vmlinux.lz4", "Image.bz2", "vmlinuz-lz4.efi", "vmlinuz-xz"])
def test_what_cannot_be_changed_in_its_box(name: str, journal: bool, tmp_path: Path) -> None:
    """Compressions that are only read; and nor is anything taken back or added where someone packed
    what a command had changed, with the journal in the place of what a decompressor reads."""
    box = {**ELF_BOXES, **IMAGE_BOXES}[name]
    if name == "vmlinuz-xz" and not journal:
        pytest.skip("can be changed: test_repacked.py")
    inside = _put(tmp_path, "inside", _inside(box))
    if journal:
        assert ftpatch("enable", "--in-place", inside, "-f", "vfs_*").code == 0
    path = _put(tmp_path, box.name, box.pack(inside.read_bytes()))
    inside.unlink()
    before = path.read_bytes()
    output = tmp_path / "out"
    for verb, *words in (
        ["enable"],
        ["enable", "--in-place"],
        ["enable", "-f", "vfs_*", "--dry-run"],
        ["enable", "--site", "ftrace_call"],
        ["disable", "-o", str(output)],
        ["disable", "--json"],
        ["undo"],
        ["undo", "--all", "-o", str(output)],
        ["undo", "--dry-run"],
    ):
        result = ftpatch(verb, path, *words)
        _refused(result, f"extract it first: `ftpatch extract {path} -o FILE`")
    assert path.read_bytes() == before and _names(tmp_path) == [box.name]


def test_modules(tmp_path: Path) -> None:
    """What an archive or `kmod` packed: the module with its signature."""
    inside = signed(module(FORMS["x86_64"]).build())
    for kind, suffix in (("gzip", ".gz"), ("xz", ".xz"), ("zstd", ".zst"), ("lz4", ".lz4")):
        path = _put(tmp_path, f"demo.ko{suffix}", PACKERS[kind](inside))
        assert ftpatch("extract", "--json", path).only["layers"] == [kind]
        assert (tmp_path / "demo.ko").read_bytes() == inside
        (tmp_path / "demo.ko").unlink()
    refused = ftpatch("disable", tmp_path / "demo.ko.lz4", "--strip-signature")
    _refused(refused, "a module in another file cannot be changed; extract it first")


def test_an_output_that_exists(tmp_path: Path) -> None:
    path, output = _put(tmp_path), _put(tmp_path, "vmlinuz.elf", b"mine")
    _refused(ftpatch("extract", path), f"{output}: the output exists; use --force to overwrite it")
    assert output.read_bytes() == b"mine"
    assert ftpatch("extract", path, "--force").code == 0
    assert output.read_bytes() == KERNEL
    assert _names(tmp_path) == ["vmlinuz", "vmlinuz.elf"]


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    path = _put(tmp_path)
    before = path.read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "hard").hardlink_to(path)
    names = _names(tmp_path)
    for output, words in (
        ("folder", "the output is a directory"),
        ("link", "the output is a symbolic link"),
        ("pipe", "not a regular file"),
        ("vmlinuz", "the output is the input"),
        ("hard", "the output is the input"),
        ("missing/out", "cannot write: No such file"),
        ("vmlinuz/out", "cannot write: Not a directory"),
    ):
        _refused(ftpatch("extract", path, "-o", tmp_path / output, "--force"), words)
        assert _names(tmp_path) == names and path.read_bytes() == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach: those of pytest are for one user only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_that_cannot_be_written_to(open_folder: Path, tmp_path: Path) -> None:
    path = _put(open_folder)
    path.chmod(0o644)
    assert ftpatch("extract", path, "-o", tmp_path / "out").code == 0  # so it is all imported
    for words in ([], ["-o", str(open_folder / "other")]):
        _refused(ftpatch_as(NOBODY, "extract", path, *words), "cannot write: Permission denied")
    path.chmod(0o600)
    _refused(ftpatch_as(NOBODY, "extract", path), "Permission denied")
    assert _names(open_folder) == ["vmlinuz"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (KERNEL, "nothing to extract; use the file itself"),
        (bytes(raw_kernel("arm64-rela").data), "nothing to extract; use the file itself"),
        (b"text\n" * 200, "nothing to extract"),
        (b"\0", "nothing to extract"),
        (b"", "the file is empty"),
        (PACKERS["xz"](b"text\n" * 200), "unpacks to neither an ELF file nor a supported Image"),
        (
            bzimage(sized("lz4", b"text\n" * 200)),
            "unpacks to neither an ELF file nor a supported Image",
        ),
    ],
    ids=["elf", "image", "text", "zero", "empty", "packed-text", "boxed-text"],
)
def test_what_holds_nothing(data: bytes, words: str, tmp_path: Path) -> None:
    path = _put(tmp_path, "file", data)
    for more in ([], ["-o", str(tmp_path / "out")], ["--json", "--force"]):
        _refused(ftpatch("extract", path, *more), words)
    assert _names(tmp_path) == ["file"] and path.read_bytes() == data


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in ((".", "a folder"), ("pipe", "regular file"), ("none", "No such file")):
        _refused(ftpatch_process("extract", tmp_path / name), words)
    assert _names(tmp_path) == ["pipe"]


def test_owner_and_mode(tmp_path: Path) -> None:
    """As of any output: those of the input, but never setuid."""
    path = _put(tmp_path)
    path.chmod(0o4640)
    assert ftpatch("extract", path).code == 0
    assert stat.S_IMODE((tmp_path / "vmlinuz.elf").stat().st_mode) == 0o640
    link = tmp_path / "link"
    link.symlink_to(path)
    assert ftpatch("extract", link).code == 0
    assert (tmp_path / "link.elf").read_bytes() == KERNEL
