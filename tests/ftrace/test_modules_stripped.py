# SPDX-License-Identifier: MIT
"""Patched modules after other tools: what ftpatch laid behind the end is as good as the rest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.compiled import TARGETS
from tests.support.loose_forms import CALLING, FORMS, Form
from tests.support.loose_images import PLACES, module, put
from tests.support.loose_reader import read_loose

every_form = pytest.mark.parametrize("name", FORMS)
TOOLS = (
    ["strip", "--strip-debug"],
    ["objcopy"],
    ["objcopy", "--remove-section=.modinfo"],
    ["objcopy", "--add-symbol", "extra=.text:4,function"],
)


def _run(form: Form, command: list[str], path: Path, output: Path) -> None:
    tool = shutil.which(TARGETS[form.arch].gcc.removesuffix("gcc") + command[0])
    if tool is None:
        pytest.skip(f"no {command[0]} for {form.arch}")
    done = subprocess.run(
        [tool, *command[1:], "-o" if command[0] == "strip" else str(path), str(output)]
        + ([str(path)] if command[0] == "strip" else []),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done


@every_form
@pytest.mark.parametrize("command", TOOLS, ids=" ".join)
def test_calls_and_records_stay(name: str, command: list[str], tmp_path: Path) -> None:
    """The journal does not: then it is a module like any other, and can be patched anew."""
    form = FORMS[name]
    path, output = put(module(form), tmp_path), tmp_path / "stripped.ko"
    few = ["-f", "*_it"]
    assert ftpatch("enable", "--in-place", path, "--to", "new_one", *few).code == 0
    _run(form, command, path, output)
    read = read_loose(output)
    chosen = [place for function, place in PLACES.items() if function.endswith("_it")]
    assert read.calls(form, "new_one", *chosen)
    others = {place for place in PLACES.values() if place not in chosen}
    assert set(read.records(form.table)) == others
    assert read.undefined() == read_loose(path).undefined()
    assert "no journal" in ftpatch("undo", output).err
    row = ftpatch("status", "--json", output).only
    assert (row["sites"], row["dropped"]) == (2, 0)
    data = output.read_bytes()
    assert ftpatch("enable", "--in-place", output, "--to", "new_two").code == 0
    assert read_loose(output).calls(form, "new_two", *others)
    assert read_loose(output).calls(form, "new_one", *chosen)
    assert ftpatch("undo", output).code == 0 and output.read_bytes() == data


@pytest.mark.parametrize("name", CALLING)
def test_nops_stay(name: str, tmp_path: Path) -> None:
    """Also those of i386, whose relocation of symbol 0 no tool may tidy away."""
    form = FORMS[name]
    path, output = put(module(form), tmp_path), tmp_path / "stripped.ko"
    assert ftpatch("disable", "--in-place", path, "-f", "read_it").code == 0
    _run(form, ["strip", "--strip-debug"], path, output)
    read = read_loose(output)
    where, at = PLACES["read_it"]
    assert read.contents[where][at : at + 5] == form.disabled
    assert {(e.type, e.row) for e in read.at(where, at + 1)} <= {(form.neutral, 0)}
