# SPDX-License-Identifier: MIT
"""Containers recognise themselves: from their first bytes, and one of them."""

from __future__ import annotations

import ast
import struct
from pathlib import Path

import pytest

from ftpatch.image.container import RawKind, Wrapper
from ftpatch.image.containers import containers, elf_kinds, raw_kinds, wrappers
from ftpatch.image.payload import begins_as_image, bytes_that_tell
from tests.support.boot_images import bzimage, ipl_image, zboot
from tests.support.boxes import PACKERS, sized
from tests.support.command import ftpatch
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module
from tests.support.raw_images import ARM64, TEXT

FOLDER = Path(__file__).parent.parent.parent / "ftpatch/image/containers"
STREAM = sized("xz", b"\x7fELF" + bytes(2000))
SAMPLES = {
    "bzImage": bzimage(STREAM),
    "bzImage (IPL)": ipl_image(sized("xz", bytes(1 << 21)), [0x10_0000]),
    "zboot": zboot(STREAM, len(STREAM), "xz"),
    "zImage": struct.pack("<36xIIII12x", 0x016F_2818, 0, 0, 0x0403_0201) + STREAM,
    "compressed": STREAM,
}
by_bytes = pytest.mark.parametrize("one", [*wrappers(), *raw_kinds()], ids=lambda one: one.name)


def test_a_file_is_a_container_of_one_sort() -> None:
    files = [path for path in FOLDER.glob("*.py") if path.name != "__init__.py"]
    assert len(files) == len(containers()) == len({one.name for one in containers()})
    assert len(containers()) == len(wrappers()) + len(raw_kinds()) + len(elf_kinds())


def test_the_order_is_certain() -> None:
    for sort in (wrappers(), raw_kinds(), elf_kinds()):
        orders = [one.order for one in sort]
        assert orders == sorted(set(orders))


@by_bytes
def test_as_many_bytes_tell_as_it_says(one: Wrapper | RawKind) -> None:
    data = SAMPLES.get(one.name) or bytes(0x38) + ARM64 + bytes(TEXT)
    assert one.begins(memoryview(data))
    assert one.begins(memoryview(data[: one.head]))
    assert one.head <= bytes_that_tell()
    for length in range(one.head):
        assert not one.begins(memoryview(data[:length])) or one.name == "compressed"


@pytest.mark.parametrize("name", SAMPLES)
def test_one_wrapper_recognises_it(name: str) -> None:
    found = [one.name for one in wrappers() if one.begins(memoryview(SAMPLES[name]))]
    assert found == [name]


@pytest.mark.parametrize("kind", PACKERS)
def test_a_stream_tells_no_image_by_its_beginning(kind: str) -> None:
    stream = PACKERS[kind](bytes(2000))
    assert not begins_as_image(memoryview(stream[: bytes_that_tell()]))


def test_nobody_else_knows_a_container_by_its_name() -> None:
    for path in FOLDER.parent.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and "container" in ast.unparse(node.left):
                told = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
                assert not any(isinstance(value, str) for value in told), (path, node.lineno)


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd"])
def test_a_module_in_a_kernel_s_container_is_not_written(tmp_path: Path, kind: str) -> None:
    data = module(FORMS["x86_64"]).build()
    (tmp_path / "demo.ko").write_bytes(PACKERS[kind](data))
    (tmp_path / "boxed").write_bytes(bzimage(sized(kind, data)))
    assert ftpatch("disable", tmp_path / "demo.ko", "--dry-run").code == 0
    refused = ftpatch("disable", tmp_path / "boxed", "--dry-run")
    assert refused.code == 2 and "in another file cannot be changed" in refused.err
