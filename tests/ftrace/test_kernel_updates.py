# SPDX-License-Identifier: MIT
"""Updates of kernels: a patched one must still pass its own ftrace_init."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.elf_writer import Symbol
from tests.support.images import arm64_callops_kernel, arm64_relr_kernel, fentry_kernel, section
from tests.support.readers import disassembled, target_of
from tests.support.samples import KERNELS, Sample, sample
from tests.support.tables import relr

Copied = Callable[[str], Path]
CALLABLE = [s for s in KERNELS if s.name != "vmlinux-arm64-far-full"]
"""Its sites reach neither ftrace_caller nor room for a veneer."""
X86 = [s for s in KERNELS if s.arch in ("x86_64", "i386")]
ARM64 = [s for s in CALLABLE if s.arch == "arm64"]
every_kernel = pytest.mark.parametrize("kernel", CALLABLE, ids=lambda s: s.name)
FEW = ["-f", "vfs_*", "-n", "vfs_fsync*"]


def _image(reader: ModuleType, kernel: Sample, path: Path) -> Any:  # noqa: ANN401
    return reader.Image(path, reader.Pad(*kernel.pad))


def _entries(path: Path) -> int:
    """N of "ftrace: allocating N entries", which must come with no ftrace bug."""
    result = ftpatch("check", path)
    assert result.code == 0, result.out
    (line,) = (line for line in result.out.splitlines() if ": ftrace: allocating " in line)
    assert line.endswith(", no ftrace bug")
    return int(line.split("allocating ")[1].split()[0])


@every_kernel
def test_what_is_enabled_loses_its_record(
    kernel: Sample, copy_of: Copied, reader: ModuleType
) -> None:
    path = copy_of(kernel.name)
    before = _entries(path)
    result = ftpatch("enable", "--in-place", "--json", path, *FEW)
    assert result.code == 0, result.err
    changed = result.only["changed"]
    assert changed == result.only["dropped"] == 3
    # A kernel that knows null records prints what is left, an older one the whole table.
    nulls = kernel.expected["null"] > 0
    assert _entries(path) == before - changed * nulls
    image, skipped = _image(reader, kernel, path), {0, (1 << 64) - 4}
    original = _image(reader, kernel, kernel.path)
    gone = [
        was
        for was, now in zip(original.records, image.records, strict=True)
        if was != now and now in skipped
    ]
    rows = ftpatch("list", "--json", path, *FEW).json
    assert len(gone) == changed and all(row["dropped"] for row in rows)
    assert [was == now for was, now in zip(original.records, image.records, strict=True)].count(
        False
    ) == changed
    for slot, value in zip(image.slots, image.records, strict=True):
        if value in skipped and original.records[image.slots.index(slot)] not in skipped:
            assert slot not in image.relocations, "else the loader would write over it"


@pytest.mark.parametrize("kernel", [*X86, *ARM64], ids=lambda s: s.name)
def test_with_its_record_it_is_an_ftrace_bug(kernel: Sample, copy_of: Copied) -> None:
    path = copy_of(kernel.name)
    table = ftpatch("status", "--json", path).only["null"]
    assert ftpatch("enable", "--in-place", path, "--keep-records", *FEW).code == 0
    result = ftpatch("check", "--json", path)
    assert result.code == 1
    assert [row["invariant"] for row in result.json] == ["ftrace_init"]
    bug = result.json[0]["bug"]
    assert "ftrace failed to modify" in bug and ("expected:" in bug) == (kernel.arch != "arm64")
    status = ftpatch("status", "--json", path).only
    assert (status["dropped"], status["null"]) == (0, table)


@pytest.mark.parametrize("kernel", ARM64, ids=lambda s: s.name)
def test_what_goes_back_to_nops_gets_its_record_back(kernel: Sample, copy_of: Copied) -> None:
    path = copy_of(kernel.name)
    before = path.read_bytes()
    assert ftpatch("enable", "--in-place", path, *FEW).code == 0
    between = path.read_bytes()
    result = ftpatch("disable", "--in-place", "--json", path, *FEW)
    assert result.only["restored"] == result.only["changed"] == 3
    assert _entries(path) == _entries(kernel.path)
    assert ftpatch("status", "--json", path).only["dropped"] == 0
    after = path.read_bytes()[: len(before)]
    differing = [i for i in range(len(before)) if before[i] != after[i]]
    # A veneer or stub stays where it was laid: in padding, where it does no harm.
    padding = [i for i in range(len(before)) if between[i] != before[i]]
    assert set(differing) <= set(padding) and len(differing) <= 16


@pytest.mark.parametrize("kernel", X86, ids=lambda s: s.name)
def test_an_x86_kernel_s_own_nop(kernel: Sample, copy_of: Copied) -> None:
    """x86_nops says which; ftrace_init expects calls, so the record goes as well."""
    path = copy_of(kernel.name)
    result = ftpatch("disable", "--in-place", "--json", path, *FEW)
    assert result.only["changed"] == result.only["dropped"] == 3
    _entries(path)
    own = "3e8d742600" if kernel.arch == "i386" else "0f1f440000"
    data = path.read_bytes()
    for row in ftpatch("list", "--json", path, *FEW).json:
        assert (row["state"], row["target"]) == ("nop", "")
        assert data[row["offset"] :][:5].hex() == own


@every_kernel
def test_a_second_run_sees_what_the_first_dropped(kernel: Sample, copy_of: Copied) -> None:
    path = copy_of(kernel.name)
    rows = ftpatch("list", "--json", path).json
    assert ftpatch("enable", "--in-place", path, *FEW).code == 0
    assert ftpatch("disable", "--in-place", path, "-f", "vfs_read").code == 0
    assert ftpatch("enable", "--in-place", path, "-f", "vfs_read").code == 0
    again = ftpatch("list", "--json", path).json
    assert [row["ip"] for row in again] == [row["ip"] for row in rows]
    assert ftpatch("enable", "--json", "--in-place", path, *FEW).only["changed"] == 0
    assert ftpatch("undo", "--all", path).code == 0
    assert path.read_bytes() == kernel.data


GATES = [
    ("vmlinux-x86_64", "ftrace_call", "vfs_read", "call"),
    ("vmlinux-i386", "ftrace_call", "vfs_read", "call"),
    ("vmlinux-i386", "ftrace_graph_call", None, "jmp"),
    ("vmlinux-arm64", "ftrace_call", "vfs_read", "bl"),
    ("vmlinux-arm64-far", "ftrace_graph_call", None, "b"),
]


@pytest.mark.parametrize(("name", "gate", "to", "mnemonic"), GATES)
def test_named_sites(
    name: str, gate: str, to: str | None, mnemonic: str, copy_of: Copied, reader: ModuleType
) -> None:
    path, kernel = copy_of(name), sample(name)
    image = _image(reader, kernel, path)
    at = image.address_of(gate)
    wanted = image.address_of(to or "ftrace_graph_caller")
    options = ["--to", to] if to else []
    assert ftpatch("enable", "--in-place", path, "--site", gate, *options).code == 0
    code = path.read_bytes()[image.offset(at) :][:5]
    (insn, *_) = disassembled(kernel.arch, code, at)
    assert insn.mnemonic == mnemonic
    assert target_of(insn) & ((1 << 8 * image.word) - 1) == wanted
    _entries(path)
    assert ftpatch("disable", "--in-place", path, "--site", gate).code == 0
    assert ftpatch("undo", "--all", path).code == 0
    assert path.read_bytes() == kernel.data


@pytest.mark.parametrize("nulls", [0, 1])
def test_the_address_word_of_a_relr_run_cannot_be_cleared(nulls: int, tmp_path: Path) -> None:
    """Zero plus the kernel's displacement is skipped by a kernel that looks where records point;
    by another it would be followed."""
    image = arm64_relr_kernel(nulls=nulls)
    table, relocations = section(image, ".init.data"), section(image, ".relr.dyn")
    words = len(table.data) // 8
    # Without the pointer before the table, and without a relocation of the nulls.
    first = table.address + 8 * (1 + nulls)
    relocations.data = relr(image, [first + 8 * i for i in range(words - 1 - nulls)])
    path = tmp_path / "vmlinux"
    path.write_bytes(image.build())
    result = ftpatch("enable", "--in-place", path, "-f", "vfs_read")
    if not nulls:
        assert result.code == 1 and "RELR" in result.err
        assert ftpatch("enable", "--in-place", path, "-f", "vfs_write").code == 0
        return
    assert result.code == 0
    _entries(path)
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == image.build()


def test_a_kernel_of_real_size_takes_seconds(tmp_path: Path) -> None:
    """What is done site by site shows here, in the processor's time: others use it as well."""
    names = [f"function_{i:05}" for i in range(40_000)]
    path = tmp_path / "vmlinux"
    path.write_bytes(fentry_kernel(names, step=16, nulls=600).build())
    commands: tuple[list[str | Path], ...] = (
        ["enable", "--in-place", path],
        ["disable", "--in-place", path, "-f", "*[02468]"],
        ["check", path],
        ["diff", "-q", path],
        ["status", path],
        ["undo", "--all", path],
    )
    for arguments in commands:
        begun = time.process_time()
        assert ftpatch(*arguments).code == (1 if arguments[0] == "diff" else 0)
        assert time.process_time() - begun < 10, arguments


def test_a_misaligned_patch_site_is_none(tmp_path: Path) -> None:
    """With CALL_OPS ftrace_call_adjust makes a record that is not 8-aligned null: compilers that
    do not align cold functions leave such, and a literal has no place there."""
    image = arm64_callops_kernel(nulls=2)
    text, data = section(image, ".text"), section(image, ".init.data")
    nop, ret = bytes.fromhex("1f2003d5"), bytes.fromhex("c0035fd6")
    cold = text.address + len(text.data) + 4
    text.data += ret + nop * 4 + ret
    image.symbols.append(Symbol("cold", cold + 8, 12))
    image.symbols = [
        replace(s, value=cold + 32) if s.name == "_etext" else s for s in image.symbols
    ]
    words = [int.from_bytes(data.data[i : i + 8], "little") for i in range(0, len(data.data), 8)]
    data.data = image.table([words[0], *words[2:], cold])  # in the place of one null
    path = tmp_path / "vmlinux"
    path.write_bytes(image.build())
    functions = len(words) - 3
    lost = "record-aligned"
    assert lost in {row["invariant"] for row in ftpatch("check", "--json", path).json}
    result = ftpatch("enable", "--json", "--in-place", path)
    assert (result.code, result.only["changed"]) == (0, functions), result.err
    assert path.read_bytes().count(text.data[-24:]) == 1, "its code is as it was"
    assert lost in {row["invariant"] for row in ftpatch("check", "--json", path).json}
