# SPDX-License-Identifier: MIT
"""riscv64 kernels: their ftrace_init compares nothing, makes NOPs of all sites that it finds in its
table, and is not relocated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.gnu import link_at
from tests.support.samples import sample

Copied = Callable[[str], Path]
FEW = ["-f", "vfs_*", "-n", "vfs_fsync*"]
PLAIN, OPS = "vmlinux-riscv64", "vmlinux-riscv64-callops"
NOP = bytes.fromhex("13000000")
C_NOPS = bytes.fromhex("0100") * 4
both = pytest.mark.parametrize("name", [PLAIN, OPS])


def _image(reader: ModuleType, path: Path, name: str) -> Any:  # noqa: ANN401 - of a script
    return reader.Image(path, reader.Pad(*sample(name).pad))


@both
def test_what_is_enabled_loses_its_record_and_gets_its_ops(
    name: str, copy_of: Copied, reader: ModuleType
) -> None:
    path = copy_of(name)
    assert ftpatch("enable", "--json", "--in-place", path, *FEW).only["dropped"] == 3
    image, before = (_image(reader, at, name) for at in (path, sample(name).path))
    gone = [was for was, now in zip(before.records, image.records, strict=True) if was and not now]
    assert len(gone) == 3
    ops = image.address_of("ftrace_nop_ops")
    for record in gone:
        assert before.read(record, 8) == C_NOPS
        assert image.site(record).target == "ftrace_caller"
        if ops:  # a record points at the literal, eight bytes before the function
            assert image.read(record, 8) == ops.to_bytes(8, "little")
    assert ftpatch("check", path).code == 0


@both
def test_what_is_disabled_gets_its_record_back(
    name: str, copy_of: Copied, reader: ModuleType
) -> None:
    path = copy_of(name)
    assert ftpatch("enable", "--in-place", path, *FEW).code == 0
    result = ftpatch("disable", "--json", "--in-place", path, "-f", "vfs_read").only
    assert (result["changed"], result["restored"]) == (1, 1)
    image, before = (_image(reader, at, name) for at in (path, sample(name).path))
    (row,) = ftpatch("list", "--json", path, "-f", "vfs_read").json
    assert (row["state"], row["dropped"]) == ("nop", False)
    start = int(row["ip"], 16) - 4 * (name == OPS)
    assert image.read(start, 8) == NOP * 2
    # The literal, or what comes before the function.
    assert image.read(start - 8, 8) == before.read(start - 8, 8)
    assert ftpatch("disable", "--json", "--in-place", path).only["restored"] == 2
    assert _image(reader, path, name).records == before.records
    assert ftpatch("undo", "--all", path).code == 0
    assert path.read_bytes() == sample(name).data


@both
def test_no_record_is_an_ftrace_bug(name: str, copy_of: Copied) -> None:
    """The kernel would make NOPs of these calls, without a word: but check names them."""
    path = copy_of(name)
    assert ftpatch("enable", "--in-place", "--keep-records", path, *FEW).code == 0
    result = ftpatch("check", "--json", path)
    undone = [row for row in result.json if row["invariant"] != "ftrace_init"]
    assert {row["invariant"] for row in undone} == {"call-kept"}
    called = [row for row in ftpatch("list", "--json", path).json if row["state"] == "call"]
    assert called and [row["ip"] for row in undone] == [row["ip"] for row in called]
    assert ftpatch("status", "--json", path).only["dropped"] == 0


def test_sites_of_a_kernel_that_ran(copy_of: Copied) -> None:
    """auipc t0; nop, as ftrace_init_nop leaves it, is a NOP, and old code that is known."""
    path = copy_of(OPS)
    rows = ftpatch("list", "--json", path, *FEW).json
    data = bytearray(path.read_bytes())
    for row in rows:
        start = row["offset"] - 4  # the list has that of ip
        data[start : start + 8] = bytes.fromhex("97120000") + NOP
    path.write_bytes(data)
    assert {row["state"] for row in ftpatch("list", "--json", path, *FEW).json} == {"nop"}
    assert ftpatch("enable", "--json", "--in-place", path, *FEW).only["changed"] == 3
    assert {row["target"] for row in ftpatch("list", "--json", path, *FEW).json} == {
        "ftrace_caller"
    }
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == data


def test_ftrace_call(copy_of: Copied, reader: ModuleType) -> None:
    path = copy_of(PLAIN)
    image = _image(reader, path, PLAIN)
    at, to, stub = (image.address_of(n) for n in ("ftrace_call", "vfs_read", "ftrace_stub"))
    gate = ["--in-place", str(path), "--site", "ftrace_call"]
    assert ftpatch("enable", *gate, "--to", "vfs_read").code == 0
    assert [_image(reader, path, PLAIN).read(at, 8)] == link_at(
        "riscv64", [(at, "call target", to)]
    )
    assert ftpatch("disable", *gate).code == 0
    assert [_image(reader, path, PLAIN).read(at, 8)] == link_at(
        "riscv64", [(at, "call target", stub)]
    )
    assert ftpatch("undo", "--all", path).code == 0 and path.read_bytes() == sample(PLAIN).data
    # A kernel with CALL_OPS has none: its ftrace_caller calls what the ops say.
    refused = ftpatch("enable", "--in-place", copy_of(OPS), "--site", "ftrace_call", "--to", "fget")
    assert refused.code == 2 and "no ftrace_call" in refused.err
