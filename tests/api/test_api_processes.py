# SPDX-License-Identifier: MIT
"""``ftpatch.Process``: what nm, /proc and the command line say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ftpatch
from tests.support.command import ftpatch as command
from tests.support.padded import padded
from tests.support.running import (
    PROGRAM,
    address_by_nm,
    needs_gdb,
    poked,
    program_with_library,
    running,
    starts_by_maps,
)

pytestmark = needs_gdb


def test_images_are_those_of_the_kernel(tmp_path: Path) -> None:
    path, library = program_with_library(tmp_path)
    with running(path) as program:
        process = ftpatch.Process(program.pid)
        starts = starts_by_maps(program.pid)
    assert {str(image.path): image.address for image in process.images} == starts
    assert (process.pid, process.name, process.errors) == (program.pid, "prog", [])
    first, *others = process.images
    assert (first.path, first.container, first.arch) == (path, "executable", "x86_64")
    assert [image.path for image in others if image.matches("libl.so")] == [library]
    assert not any(image.deleted for image in process.images)
    assert str(first) == f"<x86_64 executable {path} at {first.address:#x}>"


def test_sites_are_at_addresses_of_the_process(tmp_path: Path) -> None:
    path, library = program_with_library(tmp_path)
    with running(path) as program:
        starts = starts_by_maps(program.pid)
        link = {name: address_by_nm(library, name) for name in ("three", "four")}
        poked(program.pid, starts[str(library)] + link["four"], bytes.fromhex("0f1f440000"))
        process = ftpatch.Process(program.pid)
        (own,) = [image for image in process.images if image.path == library]
        sites = own.sites
        every = {image.path: len(image.sites) for image in process.images}
        chosen = process.select(["t*", "four"], notrace="two")
    assert sites.symbol.tolist() == ["three", "four"]
    assert sites.ip.tolist() == [starts[str(library)] + at for at in link.values()]
    assert sites.differing.tolist() == [False, True]
    assert sites.columns()["differing"].tolist() == [False, True]
    assert sites[sites.differing].symbol.tolist() == ["four"] == [sites[1].symbol]
    assert [site.symbol for site in sites.select(hex(int(sites.ip[0])))] == ["three"]
    assert sites[1:].select("f*").differing.tolist() == [True]
    assert {one: number for one, number in every.items() if number} == {path: 3, library: 2}
    assert [(image.path, chosen.symbol.tolist()) for image, chosen in chosen] == [
        (library, ["three", "four"])
    ]
    with pytest.raises(ftpatch.UsageError, match="matches no site"):
        sites.select("two")
    in_file = ftpatch.open(library).sites
    assert "differing" not in in_file.columns()
    assert (sites.ip - in_file.ip == np.uint64(own.address)).all()
    with pytest.raises(AttributeError):
        in_file.differing  # noqa: B018


def test_checks_say_what_the_command_does(tmp_path: Path) -> None:
    path, library = program_with_library(tmp_path)
    with running(path) as program:
        place = starts_by_maps(program.pid)[str(library)] + address_by_nm(library, "three") + 5
        poked(program.pid, place, b"\x06")
        checks = [image.check() for image in ftpatch.Process(program.pid).images]
        (row,) = command("check", "--json", "--pid", str(program.pid)).json
    (found,) = [finding for check in checks for finding in check.findings]
    assert (hex(found.ip or 0), found.symbol, found.message) == (
        row["ip"],
        row["symbol"],
        row["message"],
    )
    assert found.ip == place and found.linked == address_by_nm(library, "three") + 5


def test_what_is_no_process() -> None:
    with pytest.raises(ftpatch.InputError, match="no such process"):
        ftpatch.Process(99999999)


@pytest.mark.parametrize("wrong", ["a\0b", "\ud800", "1", None, True, 1.5, Path("/")])
def test_what_is_no_number(wrong: object) -> None:
    with pytest.raises(ftpatch.UsageError, match=r"pid is .*, not a whole number"):
        ftpatch.Process(wrong)  # type: ignore[arg-type]


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    """Said in one line by each method that makes a file, before anything is changed."""
    name = tmp_path / ("x" * 300)
    with running(padded(tmp_path, PROGRAM)) as program:
        process = ftpatch.Process(program.pid)
        for make in (
            lambda: process.enable("two", output=name),
            lambda: process.probe("p two", output=name),
            lambda: process.watch("stdout:rw-", output=name),
        ):
            with pytest.raises(ftpatch.OutputError, match="File name too long"):
                make()
        with pytest.raises(ftpatch.UsageError, match="not attached"):
            process.undo()
