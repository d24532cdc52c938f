# SPDX-License-Identifier: MIT
"""The comparison before every write, and the words for what it refuses."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import Image, open_image
from ftpatch.update.refused_sites import refused_sites
from ftpatch.write.verify import Verdict, verify_image
from tests.core.test_changes import Row, changes
from tests.support.command import ftpatch
from tests.support.images import arm64_rela_kernel, pad_program, section, symbols_at

DATA = pad_program().build()
SIZE = len(DATA)
VFS_READ, VFS_WRITE = (symbols_at(0x40_1000)[name] for name in ("vfs_read", "vfs_write"))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """A program that says nothing of its own here: only its bytes are compared."""
    path = tmp_path / "image"
    path.write_bytes(DATA)
    return open_image(path)


def _row(at: int, width: int, owner: int = 0, wrong: bool = False) -> Row:
    old = DATA[at : at + width].ljust(width, b"\0")
    return at, bytes([old[0] ^ wrong]) + old[1:], b"\xaa" * width, owner


def _errors(image: Image, rows: list[Row], align: int = 1, kind: Kind = Kind.CODE) -> list[int]:
    return [int(code) for code in verify_image(image, changes(rows, kind), align).errno]


def test_what_stands_there_passes(image: Image) -> None:
    rows = [_row(at, width) for at, width in ((0, 4), (100, 5), (SIZE - 9, 8), (SIZE - 1, 1))]
    verdict = verify_image(image, changes(rows), 1)
    assert verdict.passed and not len(verdict.refused())
    assert verify_image(image, Changes.concat([]), 1).passed


def test_one_other_byte_is_einval(image: Image) -> None:
    for width in (1, 5, 8):
        rows = [_row(40, width), _row(60, width, wrong=True)]
        assert _errors(image, rows) == [0, errno.EINVAL]


def test_bytes_behind_the_width_do_not_count(image: Image) -> None:
    """Rows of different widths are compared in one matrix."""
    assert _errors(image, [_row(40, 8), _row(SIZE - 5, 5), _row(60, 1)]) == [0, 0, 0]


@pytest.mark.parametrize("at", [-1, -8, SIZE, SIZE - 4, SIZE + 4096, 1 << 62])
def test_what_is_not_in_the_file_is_efault(at: int, image: Image) -> None:
    row = (at, bytes(5), b"\xaa" * 5, 0)
    assert _errors(image, [row, _row(40, 5)]) == [errno.EFAULT, 0]


def test_changes_that_share_a_byte_are_all_refused(image: Image) -> None:
    rows = [_row(40, 8), _row(47, 4), _row(51, 4), _row(100, 5), _row(100, 5), _row(200, 1)]
    verdict = verify_image(image, changes(rows), 1)
    assert verdict.errno.tolist() == [errno.EINVAL] * 2 + [0] + [errno.EINVAL] * 2 + [0]
    assert verdict.overlaps.tolist() == [True, True, False, True, True, False]


def test_a_wide_change_overlaps_all_that_it_covers(image: Image) -> None:
    rows = [_row(40, 64), _row(50, 2), _row(60, 2), _row(104, 4)]
    errors = _errors(image, rows)
    assert errors == [errno.EINVAL] * 3 + [0]


def test_code_must_be_aligned_as_an_instruction(image: Image) -> None:
    """By the site's address, since code of a pair begins before it."""
    rows = [_row(40, 8, 0x1002), _row(60, 8, 0x1004)]
    assert _errors(image, rows, align=4) == [errno.EINVAL, 0]
    assert _errors(image, rows, align=4, kind=Kind.RECORD) == [0, 0]
    assert _errors(image, rows, align=1) == [0, 0]


def test_one_refusal_for_each_owner(image: Image) -> None:
    parts = [
        changes([_row(40, 8, 7, True), _row(60, 8, 3, True)], Kind.RECORD),
        changes([_row(80, 8, 7, True), _row(100, 8, 5)], Kind.CODE),
        changes([_row(120, 8, NO_OWNER, True), _row(140, 8, NO_OWNER, True)], Kind.PADDING),
    ]
    verdict = verify_image(image, Changes.concat(parts), 1)
    found = [
        (int(verdict.changes.owner[row]), verdict.changes.kind[row]) for row in verdict.refused()
    ]
    assert found == [
        (3, Kind.RECORD),
        (7, Kind.CODE),  # the code says more than the record
        (NO_OWNER, Kind.PADDING),
        (NO_OWNER, Kind.PADDING),
    ]


def _reasons(image: Image, verdict: Verdict) -> list[tuple[int, str, str]]:
    found = refused_sites(read_sites(image), verdict, "Doing")
    assert all(bug.action == "Doing" for bug, _ in found)
    return [(bug.ip, bug.symbol, reason) for bug, reason in found]


def test_reasons(image: Image) -> None:
    code = changes(
        [
            _row(40, 8, VFS_READ, True),
            _row(80, 8, VFS_WRITE),
            _row(84, 2, VFS_WRITE + 4),
            (SIZE, bytes(5), bytes(5), VFS_WRITE + 64),
            _row(120, 4, VFS_WRITE + 66),
        ]
    )
    verdict = verify_image(image, code, 4)
    assert _reasons(image, verdict) == [
        (VFS_READ, "vfs_read", "EINVAL: the code is not what was expected"),
        (VFS_WRITE, "vfs_write", "EINVAL: overlaps another site"),
        (VFS_WRITE + 4, "vfs_write", "EINVAL: overlaps another site"),
        (VFS_WRITE + 64, "do_exit", "EFAULT: not in executable text of the file"),
        (VFS_WRITE + 66, "do_exit", "EINVAL: not at an instruction boundary"),
    ]
    record = verify_image(image, changes([_row(40, 8, VFS_READ, True)], Kind.RECORD), 1)
    assert _reasons(image, record)[0][2] == "EINVAL: the record is not what was expected"
    padding = verify_image(image, changes([_row(40, 8, NO_OWNER, True)], Kind.PADDING), 1)
    assert _reasons(image, padding) == [(40, "", "EINVAL: the padding is not what was expected")]


def _words_of(path: Path) -> str:
    result = ftpatch("enable", "--json", path)
    assert result.code == 1 and [p.name for p in path.parent.iterdir()] == [path.name]
    return " ".join(site["reason"] for site in result.only["failed"])


def test_sites_that_share_bytes_are_refused(tmp_path: Path) -> None:
    image = pad_program(b"\x90" * 8)
    table = image.sections[1]
    table.data += image.table([VFS_READ + 3])
    path = tmp_path / "image"
    path.write_bytes(image.build())
    words = _words_of(path)
    assert words.count("overlaps another site") == 2 and words.count("EINVAL") == 2


def test_a_record_into_data_is_refused(tmp_path: Path) -> None:
    image = pad_program()
    table = image.sections[1]
    table.data += image.table([table.address])
    path = tmp_path / "image"
    path.write_bytes(image.build())
    assert _words_of(path) == "EFAULT: not in executable text of the file"


def test_a_site_between_instructions_is_refused(tmp_path: Path) -> None:
    image = arm64_rela_kernel()
    table = section(image, ".rela.dyn")
    table.data = (
        table.data[:16] + (int.from_bytes(table.data[16:24], "little") + 2).to_bytes(8, "little")
    ) + table.data[24:]
    path = tmp_path / "image"
    path.write_bytes(image.build())
    assert _words_of(path).startswith("EINVAL: ")
