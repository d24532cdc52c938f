# SPDX-License-Identifier: MIT
"""Targets: Changes are verified against, and written to, any that has their space."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ftpatch.core.changes import Changes, Space
from ftpatch.core.journal import pack_block
from ftpatch.write.target import FileTarget, Target, require_space
from ftpatch.write.verify import verify
from tests.core.test_changes import changes

BASE = 0x7F00_0000_0000
OLD = bytes(range(64))


class Memory:
    """A page of a process: its addresses begin at BASE, and nothing is mapped before or behind."""

    space = Space.MEMORY
    name = "process 1"

    def __init__(self) -> None:
        self.page = np.frombuffer(OLD, np.uint8).copy()

    def held(self, changes: Changes) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        place = changes.offset - BASE
        mapped = (place >= 0) & (place + changes.width <= len(self.page))
        inside = replace(changes, offset=np.where(mapped, place, -1))
        return inside.held(self.page), mapped

    def apply(self, changes: Changes) -> None:
        require_space(self, changes)
        changes.put(self.page, base=BASE)


def _memory(*rows: tuple[int, bytes, bytes]) -> Changes:
    """Changes of a process: distance from BASE, old bytes, new bytes."""
    found = changes([(BASE + at, old, new, 0) for at, old, new in rows])
    return replace(found, space=Space.MEMORY)


def test_memory_is_verified_written_and_taken_back() -> None:
    memory: Target = Memory()
    wanted = _memory((8, OLD[8:12], b"abcd"), (59, OLD[59:], b"12345"))
    assert verify(memory, wanted, 1).passed
    memory.apply(wanted)
    assert isinstance(memory, Memory)
    assert memory.page.tobytes() == OLD[:8] + b"abcd" + OLD[12:59] + b"12345"
    verdict = verify(memory, wanted, 1)
    assert verdict.errno.tolist() == [errno.EINVAL] * 2
    assert verdict.actual[0, :4].tobytes() == b"abcd"
    back = wanted.reverted()
    assert back.space == Space.MEMORY and verify(memory, back, 1).passed
    memory.apply(back)
    assert memory.page.tobytes() == OLD


def test_what_is_not_mapped_is_efault() -> None:
    wanted = _memory((-1, OLD[:1], b"x"), (0, OLD[:4], b"abcd"), (61, OLD[:4], b"abcd"))
    assert verify(Memory(), wanted, 1).errno.tolist() == [errno.EFAULT, 0, errno.EFAULT]


def test_the_kinds_of_refusal_are_the_files() -> None:
    rows = (8, OLD[8:12], b"abcd"), (11, OLD[11:13], b"ef"), (30, b"\xff", b"x")
    verdict = verify(Memory(), _memory(*rows), 1)
    assert verdict.errno.tolist() == [errno.EINVAL] * 3
    assert verdict.overlaps.tolist() == [True, True, False]


def test_another_space_is_refused(tmp_path: Path) -> None:
    data = np.frombuffer(OLD, np.uint8).copy()
    file, memory = FileTarget(tmp_path / "image", data), Memory()
    of_file = changes([(8, OLD[8:12], b"abcd", 0)])
    of_memory = replace(of_file, space=Space.MEMORY)
    for target, wrong in ((file, of_memory), (memory, of_file)):
        with pytest.raises(ValueError, match="space"):
            verify(target, wrong, 1)
        with pytest.raises(ValueError, match="space"):
            target.apply(wrong)
    assert data.tobytes() == memory.page.tobytes() == OLD
    with pytest.raises(ValueError, match="two spaces"):
        Changes.concat([of_file, of_memory])
    with pytest.raises(ValueError, match="of a file"):
        pack_block(of_memory, len(OLD))


def test_spaces_survive_what_columns_go_through() -> None:
    wanted = _memory((8, OLD[8:12], b"abcd"), (4, OLD[4:5], b"x"))
    for found in (wanted.ordered(), wanted.effective(), Changes.concat([wanted, wanted])):
        assert found.space == Space.MEMORY and len(found)
    # Nothing belongs to no space: a plan joins what it has.
    nothing = changes([])
    assert Changes.concat([nothing, wanted]).space == Space.MEMORY
    assert verify(Memory(), nothing, 1).passed


def test_a_file_is_written_through_its_copy(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(OLD)
    held = np.frombuffer(OLD, np.uint8)
    wanted = changes([(40, OLD[40:41], b"!", 0), (8, OLD[8:12], b"abcd", 0)])
    with path.open("r+b") as file:
        target: Target = FileTarget(path, held, file.fileno())
        assert verify(target, wanted, 1).passed
        target.apply(wanted)
    assert path.read_bytes() == OLD[:8] + b"abcd" + OLD[12:40] + b"!" + OLD[41:]
    assert held.tobytes() == OLD
