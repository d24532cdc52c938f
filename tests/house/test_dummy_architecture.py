# SPDX-License-Identifier: MIT
"""Two architectures dropped into a copy of the package, without another edit.

``zed64`` is x86_64's folders in arch/ and in stubs/built under another name and e_machine;
``bare64`` is its ftrace.py alone. The same files of that e_machine then become the same by the
first; the second updates sites, and says in one line what it does not have.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import ROOT, Result
from tests.support.dropped_in import run_in_house
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, put
from tests.support.samples import BUILT

MODEL, WHOLE, BARE = "x86_64", "zed64", "bare64"
MACHINES = {MODEL: 62, WHOLE: 0x5A64, BARE: 0x5A65}
E_MACHINE = slice(18, 20)
"""Of ELF's header."""
DIGEST = 32
UPDATES = """
status {0} --json
status {0}
list {0} --json
check {0}
enable {0} --to {1} -o {0}.to
status {0}.to
list {0}.to
diff {0} {0}.to
disable {0}.to -o {0}.off
check {0}.off --json
diff {0} {0}.off --json
undo {0}.off
undo {0}.to
disable {0} --nop p6 -o {0}.p6
enable {0} -o {0}.own
enable {0} --site ftrace_call --to {1} -o {0}.site
"""
"""Of the files that are patched, and what their sites are to call."""
FEATURES = """
enable {0} --tracer function -o {0}.function
enable {0} --tracer function_graph --args -o {0}.graph
enable {0} --tracer boot -o {0}.boot
boot {0} --limit 1
probe {0} 'p {1}' 'r {1} $retval' -o {0}.pads
probe {0} 'p {1}+5 %ax' -o {0}.jump
probe {0} 'p {1}+5' --no-optimize -o {0}.trap
watch {0} orders:rw- -o {0}.watch
trace {0}.none
"""
READ_BACK = """
status {0}.function --json
list {0}.function
diff {0} {0}.function --limit 0
undo {0}.function -o {0}.undone
probe {0}.pads
diff {0} {0}.trap --limit 0
watch {0}.watch
"""
"""Of a program that has got these."""
NAMING = {
    "status foreign": "supported: ELF files of {}",
    "status zimage": "supported: ELF files of {}",
    "boot --help": "{} kernel.",
    "enable --help": "debugcon (default) or serial on {}",
}
"""Commands that name architectures, and where."""
IMAGES = {"vmlinux": "vfs_write", "demo.ko": "printk", "pad": "work"}
TEXTS = {image: UPDATES + FEATURES + READ_BACK * (image == "pad") for image in IMAGES}
COMMANDS = [
    line.format(image, callee)
    for image, callee in IMAGES.items()
    for line in TEXTS[image].splitlines()
    if line
]
IS_UPDATE = {line.format(*one) for one in IMAGES.items() for line in UPDATES.strip().splitlines()}


def _renamed(text: str, name: str) -> str:
    """The model's source as another architecture's: its name, its number, its own files."""
    text = text.replace(f'"{MODEL}"', f'"{name}"').replace(f"arch.{MODEL}.", f"arch.{name}.")
    return re.sub(r"(machine: ClassVar\[int\] =) \d+", rf"\1 {MACHINES[name]}", text)


def _as_machine(data: bytes, name: str) -> bytes:
    held = bytearray(data)
    held[E_MACHINE] = MACHINES[name].to_bytes(2, "little")
    return bytes(held)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with both, and a folder of files for each."""
    house = tmp_path_factory.mktemp("house")
    shutil.copytree(ROOT / "ftpatch", house / "ftpatch", ignore=shutil.ignore_patterns("__py*"))
    shutil.copytree(ROOT / "stubs/built", house / "stubs/built")
    arch, built = house / "ftpatch/arch", house / "stubs/built"
    for name in (WHOLE, BARE):
        (arch / name).mkdir()
        for path in (arch / MODEL).glob("*.py" if name == WHOLE else "ftrace.py"):
            (arch / name / path.name).write_text(_renamed(path.read_text(), name))
    (arch / BARE / "__init__.py").touch()
    (built / WHOLE).mkdir()
    for path in (built / MODEL).glob("*.elf"):
        (built / WHOLE / path.name).write_bytes(_as_machine(path.read_bytes(), WHOLE))
    for path in (house / "ftpatch").glob(f"layout/{MODEL}.*"):  # made of stubs/ as well
        shutil.copy(path, path.with_stem(WHOLE))
    for name in MACHINES:
        folder = house / name
        folder.mkdir()
        put(module(FORMS[MODEL]), folder)
        shutil.copy(BUILT / f"vmlinux-{MODEL}", folder / "vmlinux")
        shutil.copy(BUILT / "pad", folder / "pad")
        for image in IMAGES:
            path = folder / image
            path.write_bytes(_as_machine(path.read_bytes(), name))
    return house


@pytest.fixture(scope="module")
def results(house: Path) -> Mapping[str, Mapping[str, Result]]:
    """For each architecture: a command and what came of it, where the architecture's name is X."""
    return {name: _run(house, name) for name in MACHINES}


def _run(house: Path, name: str, commands: Sequence[str] = COMMANDS) -> dict[str, Result]:
    """The architecture's name is X in what they print."""

    def neutral(text: str) -> str:
        return text.replace(name, "X").replace(f"qemu-system-{MODEL}", "qemu-system-X")

    return {
        command: Result(one.code, neutral(one.out), neutral(one.err))
        for command, one in run_in_house(house, name, commands).items()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_copied_folder_does_the_same(
    house: Path, results: Mapping[str, Mapping[str, Result]], command: str
) -> None:
    assert results[WHOLE][command] == results[MODEL][command]
    assert "internal error" not in results[WHOLE][command].err


def test_a_copied_folder_writes_the_same(
    house: Path, results: Mapping[str, Mapping[str, Result]]
) -> None:
    names = sorted(path.name for path in (house / MODEL).iterdir())
    assert {"vmlinux.to", "demo.ko.p6", "pad.graph", "pad.jump", "pad.watch"} <= set(names)
    assert names == sorted(path.name for path in (house / WHOLE).iterdir())
    for name in names:
        found, want = (np.fromfile(house / arch / name, np.uint8) for arch in (WHOLE, MODEL))
        assert len(found) == len(want), name
        # What is laid in has the machine, too, and a digest of the file that it was laid into.
        laid = name.split(".")[-1] in ("function", "graph", "pads", "jump", "trap", "watch")
        different = np.flatnonzero(found != want)
        assert different[:2].tolist() == [18, 19], name
        assert len(different) == 2 if not laid else len(different) <= 4 + DIGEST, name


@pytest.mark.parametrize("command", COMMANDS)
def test_sites_alone_are_updated_or_refused(
    results: Mapping[str, Mapping[str, Result]], command: str
) -> None:
    found, want = results[BARE][command], results[MODEL][command]
    if command in IS_UPDATE:
        assert found == want
        return
    assert found.code in (2, 125)
    assert re.fullmatch(r"ftpatch: [^\n]+\n", found.err), found.err
    assert "internal error" not in found.err


def test_what_is_missing_is_said(results: Mapping[str, Mapping[str, Result]]) -> None:
    said = {command: one.err for command, one in results[BARE].items()}
    for command, reason in (
        ("enable pad --tracer function -o pad.function", "no function tracer for X"),
        ("probe pad 'p work' 'r work $retval' -o pad.pads", "probes"),
        ("watch pad orders:rw- -o pad.watch", "watches"),
        ("enable vmlinux --tracer boot -o vmlinux.boot", "no boot tracer for X"),
    ):
        assert reason in said[command], said[command]


def test_they_are_named_where_architectures_are(house: Path) -> None:
    folder = house / "naming"
    folder.mkdir()
    foreign = bytearray((BUILT / "pad").read_bytes())
    foreign[E_MACHINE] = (0x5A66).to_bytes(2, "little")
    (folder / "foreign").write_bytes(foreign)
    (folder / "zimage").write_bytes(bytes(0x24) + bytes.fromhex("016f2818") + bytes(100))
    said = {
        command: " ".join((found.out + found.err).split())
        for command, found in _run(house, "naming", list(NAMING)).items()
    }
    every = "arm, arm64, bare64, i386, loongarch64, ppc64le, riscv64, s390x, x86_64 and zed64"
    assert NAMING["status foreign"].format(every) in said["status foreign"]
    assert NAMING["status zimage"].format(every) in said["status zimage"]
    assert (
        NAMING["boot --help"].format("arm64, i386, ppc64le, riscv64, x86_64 or zed64")
        in said["boot --help"]
    )
    assert NAMING["enable --help"].format("i386, x86_64 and zed64") in said["enable --help"]
