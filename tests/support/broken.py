# SPDX-License-Identifier: MIT
"""Ready-made images with one thing changed, and what ``check`` finds in them."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import Result, ftpatch
from tests.support.elf_writer import Image
from tests.support.images import section

__all__ = ["check", "found", "put_code", "put_words", "words_of"]


def words_of(image: Image, name: str = ".init.data") -> list[int]:
    """The words of a section."""
    data = section(image, name).data
    return [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]


def put_words(image: Image, words: list[int], name: str = ".init.data") -> Image:
    """Other words in a section."""
    section(image, name).data = image.table(words)
    return image


def put_code(image: Image, at: int, code: bytes) -> Image:
    """Other bytes at an address of .text."""
    text = section(image, ".text")
    offset = at - text.address
    text.data = text.data[:offset] + code + text.data[offset + len(code) :]
    return image


def check(image: Image, folder: Path) -> Result:
    """The image's findings, with the exit code that goes with them."""
    path = folder / "image"
    path.write_bytes(image.build())
    result = ftpatch("check", "--json", path)
    assert result.code == (1 if result.out else 0) and not result.err
    return result


def found(image: Image, folder: Path) -> list[tuple[str, int, str]]:
    """(invariant, address, symbol) of each finding."""
    return [(r["invariant"], int(r["ip"], 16), r["symbol"]) for r in check(image, folder).json]
