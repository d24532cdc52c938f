# SPDX-License-Identifier: MIT
"""Probes, watches and differences: what nm, cmp, the programs and the command line say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ftpatch
from tests.support.boot_small import bootable
from tests.support.command import ROOT
from tests.support.command import ftpatch as command
from tests.support.samples import sample
from tests.support.watch_programs import refusal

KERNEL = sample("vmlinux-x86_64").path
PROBES = ("p:sold sell n=$arg1:s32", "r:left sell $retval:s32")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    subprocess.run(["gcc", "-O2", ROOT / "samples/shop.c", "-o", path], check=True)
    return path


def _symbols(path: Path) -> dict[str, int]:
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}


def test_probes_are_laid_in_and_shown(shop: Path) -> None:
    image, output = ftpatch.open(shop), shop.with_name("shop.probed")
    done = image.probe(PROBES, output=output)
    assert done.written == output and not done.refused and image.probes == ()
    other = shop.with_name("other")
    told = command("probe", "--json", shop, *PROBES, "-o", other).json
    assert output.read_bytes() == other.read_bytes()
    assert [one._asdict() | {"address": hex(one.address)} for one in done.probes] == told
    assert [one.name for one in done.probes] == ["sold", "left"]

    laid = ftpatch.open(output)
    assert {one.ip for one in laid.probes} == {_symbols(shop)["sell"]}
    assert [one._asdict() | {"ip": hex(one.ip)} for one in laid.probes] == command(
        "probe", "--json", output
    ).json

    path = shop.with_name("trace")
    subprocess.run([output], env={**os.environ, "FTPATCH_TRACE": str(path)}, check=True)
    columns = ftpatch.Trace(path).columns()
    assert columns["n"][columns["probe"] == "sold"].tolist() == [3, 100]
    assert laid.undo() == output and output.read_bytes() == shop.read_bytes()


def test_a_probe_that_cannot_be(shop: Path) -> None:
    image, output = ftpatch.open(shop), shop.with_name("out")
    wrong = ["p sel", "p sell", "p nowhere"]
    with pytest.raises(ftpatch.UsageError) as told:
        image.probe(wrong, output=output)
    said = [str(told.value), *told.value.__notes__]
    assert len(said) == 2 and "'sel'" in said[0] and not output.exists()
    for name in ("sel", "nowhere"):
        assert any(f"no such function '{name}'" in line for line in said), said
    done = image.probe(wrong, output=output, keep_going=True)
    assert sorted(map(str, done.refused)) == sorted(said)
    assert [one.name for one in done.probes] == [one.name for one in done.probes if one.way]
    assert len(done.probes) == len(ftpatch.open(output).probes) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"probes": ()}, "no probes"),
        ({"probes": "p sell", "max_stack": 4}, "--max-stack 4 is out of range"),
        ({"probes": "p sell", "size": 100}, "100 is too small"),
        ({"probes": "p sell", "handler": "stub"}, "no function"),
        ({"probes": "p sell", "output": "x", "in_place": True}, "mutually exclusive"),
    ],
    ids=["none", "max_stack", "size", "handler", "output"],
)
def test_what_makes_no_sense(options: dict[str, object], reason: str, shop: Path) -> None:
    with pytest.raises(ftpatch.UsageError, match=reason):
        ftpatch.open(shop).probe(**options)  # type: ignore[arg-type]
    assert [path.name for path in shop.parent.iterdir()] == ["shop"]


def test_a_kernel_without_room_has_no_probes() -> None:
    image = ftpatch.open(KERNEL)
    assert image.probes == () and image.watches == ()
    with pytest.raises(ftpatch.SiteRefused, match="no padding in its data"):
        image.probe("p vfs_read", dry_run=True)
    with pytest.raises(ftpatch.UsageError, match="not a program"):
        image.watch("x:rw-", dry_run=True)


def test_a_kernel_is_probed(tmp_path: Path) -> None:
    plain, output = tmp_path / "vmlinux", tmp_path / "probed"
    plain.write_bytes(bootable().build())
    done = ftpatch.open(plain).probe(["p:a vfs_read n=$arg1:s32", "r vfs_write"], output=output)
    assert [one.way for one in done.probes] == ["pad", "pad"] and done.dropped == 2
    held = ftpatch.open(output).probes
    assert held[0].definition == "p:kprobes/a vfs_read n=$arg1:s32"
    with pytest.raises(ftpatch.UsageError, match="--sink is for kernels"):
        ftpatch.open("/bin/true").probe("p main", sink="serial", dry_run=True)


def test_watches_are_set_and_cleared(shop: Path) -> None:
    output = shop.with_name("shop.watched")
    done = ftpatch.open(shop).watch(["stock:rw-", "prices+16:-w-"], output=output)
    symbols = _symbols(shop)
    assert [(one.symbol, one.address, one.length, one.size, one.type) for one in done.watches] == [
        ("stock", symbols["stock"], 4, 4, "rw-"),
        ("prices", symbols["prices"] + 16, 4, 32, "-w-"),
    ]
    assert len(done.partial) == 1 and "4 of 32 bytes" in done.partial[0]
    image = ftpatch.open(output)
    assert image.watches == done.watches
    rows = command("watch", "--json", output).json
    assert [one._asdict() | {"address": hex(one.address)} for one in image.watches] == rows
    left = image.watch("stock:---", in_place=True)
    assert [one.symbol for one in left.watches] == ["prices"]
    assert [one.watch for one in ftpatch.open(output).watches] == ["prices+16:-w-"]
    with pytest.raises(ftpatch.UsageError, match="no such watch to clear"):
        ftpatch.open(output).watch("stock:---", in_place=True)
    ftpatch.open(output).undo(everything=True)
    assert output.read_bytes() == shop.read_bytes()


@pytest.mark.skipif(bool(refusal()), reason=refusal())
def test_accesses_are_the_programs(shop: Path) -> None:
    output, path = shop.with_name("shop.watched"), shop.with_name("trace")
    ftpatch.open(shop).watch("stock:-w-", output=output)
    subprocess.run([output], env={**os.environ, "FTPATCH_TRACE": str(path)}, check=True)
    columns = ftpatch.Trace(path).columns()
    assert columns["new"].tolist() == [12, 9] and columns["old"].tolist() == [10, 12]


def _bytes_that_differ(first: Path, second: Path) -> set[int]:
    """Offsets, as cmp tells them."""
    done = subprocess.run(["cmp", "-l", first, second], capture_output=True, text=True)
    return {int(line.split()[0]) - 1 for line in done.stdout.splitlines()}


def test_a_difference_is_where_cmp_finds_one(tmp_path: Path) -> None:
    output = tmp_path / "out"
    ftpatch.open(KERNEL).disable(["vfs_*", "!vfs_open"], keep_records=True, output=output)
    found = ftpatch.open(KERNEL).diff(output)
    sites = [row for row in found if row.kind == "site"]
    assert {row.symbol for row in sites} == {"vfs_read+0x4", "vfs_write+0x4", "vfs_fsync+0x4"}
    differing = _bytes_that_differ(KERNEL, output)
    assert {row.offset for row in sites} <= differing
    covered = {row.offset + byte for row in sites for byte in range(5)}
    assert differing <= covered, "cmp ends where the shorter file does"
    assert len(found) == len(list(found)) and not found.identical and not found.moved
    assert found.groups()[0][3] == 3


def test_differences_are_the_command_lines(tmp_path: Path) -> None:
    """Also those from what the journal restores, and from what is beside it."""
    here = tmp_path / "vmlinux"
    here.write_bytes(KERNEL.read_bytes())
    with pytest.raises(ftpatch.UsageError, match=r"no journal and no vmlinux\.ftpatch"):
        ftpatch.open(here).diff()
    output = ftpatch.open(here).disable("vfs_*").written
    assert output is not None
    for found, words in (
        (ftpatch.open(here).diff(output), (here, output)),
        (ftpatch.open(here).diff(), (here,)),
        (ftpatch.open(output).diff(), (output,)),
    ):
        rows = [
            {name: getattr(row, name) for name in ("kind", "offset", "symbol", "old", "new")}
            | {"address": None if row.address is None else hex(row.address)}
            for row in found
        ]
        assert rows == command("diff", "--json", *words).json and rows
        groups = [
            dict(zip(("kind", "old", "new", "count"), row, strict=True)) for row in found.groups()
        ]
        assert groups == command("diff", "--json", "--stat", *words).json
    same = ftpatch.open(here).diff(KERNEL)
    assert same.identical and not len(same) and not list(same)


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_library_calls(tracer: str, shop: Path) -> None:
    """A program without pads: all that it calls is in libc."""
    output, path = shop.with_name("out"), shop.with_name("trace")
    done = ftpatch.open(shop).enable(tracer=tracer, libcalls=True, output=output)
    assert done.calls and done.written == output
    env = {**os.environ, "FTPATCH_TRACE": str(path)}
    printed = subprocess.run([output], env=env, capture_output=True, text=True, check=True)
    called = ftpatch.Trace(path).columns()["function"]
    assert np.isin(called, ["printf@plt", "__printf_chk@plt"]).sum() == len(
        printed.stdout.splitlines()
    )
