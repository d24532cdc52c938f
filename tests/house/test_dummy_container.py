# SPDX-License-Identifier: MIT
"""Containers dropped into a copy of the package, one file each, without another edit.

    crate      a Wrapper: a header, and an ELF file behind it, as it is or deflated
    snapshot   a RawKind: a header, and a kernel whose offsets count from behind it
    nanokernel  an ElfKind: a program with a section of its own, which boots

What is said of them has to be what is said of the ELF file that they were made of.
"""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.command import ROOT, Result, ftpatch
from tests.support.dropped_in import run_in_house
from tests.support.elf_writer import Section
from tests.support.images import fentry_kernel, pad_program
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module
from tests.support.samples import BUILT

CRATE = '''
"""Crates: ``CRATE`` and a letter, the size of what is inside (4 bytes), and that."""

from __future__ import annotations

import zlib
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.container import Layer, Wrapper

__all__ = ["CONTAINER"]


class Crate(Wrapper):
    """A crate."""

    name = "crate"
    order = 5
    head = 10

    def begins(self, head: memoryview) -> bool:
        return len(head) >= 10 and head[:6].tobytes() in (b"CRATE=", b"CRATEz")

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        size = int.from_bytes(data[6:10], "little")
        if len(data) - 10 < size or size > limit:
            raise InputError(path, "truncated: the crate's contents")
        inside = data[10 : 10 + size]
        deflated = data[5] == ord("z")
        if deflated:
            try:
                unpacker = zlib.decompressobj()
                inside = memoryview(unpacker.decompress(inside, limit)).toreadonly()
            except zlib.error as error:
                raise InputError(path, f"the crate's contents are damaged: {error}") from None
        return Layer(self, "zlib" if deflated else "", 10, size), inside


CONTAINER: Wrapper = Crate()
'''
SNAPSHOT = '''
"""Snapshots: ``SNAPSHOT``, eight bytes, and a kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.symbols import Symbols, read_symbols
from ftpatch.image.container import RawKind

__all__ = ["CONTAINER"]


class Snapshot(RawKind):
    """A snapshot."""

    name = "snapshot"
    order = 5
    is_kernel = True
    head = 16

    def begins(self, head: memoryview) -> bool:
        return len(head) >= 16 and head[:8].tobytes() == b"SNAPSHOT"

    def read(self, path: Path, data: NDArray[np.uint8]) -> tuple[Elf, Symbols]:
        inner = Elf.read(path, data[16:])
        told = inner.skeleton
        moved = replace(
            told,
            sections=tuple(replace(one, offset=one.offset + 16) for one in told.sections),
            segments=tuple(replace(one, offset=one.offset + 16) for one in told.segments),
        )
        return Elf(path, data, moved), read_symbols(inner)


CONTAINER: RawKind = Snapshot()
'''
NANOKERNEL = '''
"""Nanokernels."""

from __future__ import annotations

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.symbols import Symbols
from ftpatch.image.container import ElfKind

__all__ = ["CONTAINER"]


class Nanokernel(ElfKind):
    """A nanokernel."""

    name = "nanokernel"
    order = 5
    is_kernel = True

    def recognises(self, elf: Elf, symbols: Symbols) -> bool:
        return elf.section(".nanokernel") is not None


CONTAINER: ElfKind = Nanokernel()
'''
DROPPED = {"crate": CRATE, "snapshot": SNAPSHOT, "nanokernel": NANOKERNEL}


def _crate(data: bytes) -> bytes:
    return b"CRATE=" + len(data).to_bytes(4, "little") + data


def _deflated(data: bytes) -> bytes:
    packed = zlib.compress(data)
    return b"CRATEz" + len(packed).to_bytes(4, "little") + packed


def _nanokernel() -> bytes:
    made = pad_program()
    made.sections.append(Section(".nanokernel", b"\1" * 8, 0x500000))
    return made.build()


KERNEL, PROGRAM = fentry_kernel().build(), (BUILT / "pad").read_bytes()
MODULE = module(FORMS["x86_64"]).build()
NANOKERNEL_FILE = _nanokernel()
FILES: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "kernel.crate": (KERNEL, _crate),
    "kernel.packed": (KERNEL, _deflated),
    "kernel.twice": (KERNEL, lambda data: gzip.compress(_crate(data))),
    "module.crate": (MODULE, _crate),
    "program.crate": (PROGRAM, _deflated),
    "kernel.snapshot": (KERNEL, lambda data: b"SNAPSHOT" + bytes(8) + data),
    "kernel.uni": (NANOKERNEL_FILE, bytes),
}
"""Of each file what it was made of, and how."""
READ = """
status {0} --json
status {0}
list {0} --json
list {0}
check {0} --json
check {0}
"""
"""Commands that say the same of the file in the container."""
UPDATES = """
enable {0} --to {1} -o {0}.to
status {0}.to --json
list {0}.to
check {0}.to
diff {0} {0}.to --json
disable {0}.to -o {0}.off
diff {0} {0}.off
undo {0}.to
disable {0} -o {0}.nop
enable {0} --site ftrace_call --to {1} -o {0}.site
enable {0} --in-place --to {1} -f {1}
undo {0} --in-place
"""
INSIDE = """
diff {0} {0}
diff {0} ../plain/{0}
extract {0} -o {0}.out
extract {0} -o {0}.out --force --json
"""
FEATURES = """
enable {0} -o {0}.own
enable {0} --to {1} --dry-run
enable {0} --tracer function -o {0}.function
enable {0} --tracer boot -o {0}.boot
boot {0} --limit 1
probe {0} 'p {1}' -o {0}.pads
probe {0} 'r {1} $retval' -o {0}.pads.r
probe {0}
watch {0} orders:rw- -o {0}.watch
watch {0}
trace {0}
trace ./{0}
report {0}
undo {0}
disable {0} --in-place
"""
CALLEE = {"kernel": "ftrace_caller", "module": "printk", "program": "work"}
SHORT = ("kernel.packed", "kernel.twice")
"""What differs from another one only in how it is packed."""


def _commands(name: str) -> list[str]:
    text = READ + INSIDE + (UPDATES + FEATURES) * (name not in SHORT)
    callee = CALLEE[name.split(".")[0]]
    return [line.format(name, callee) for line in text.splitlines() if line]


COMMANDS = {name: _commands(name) for name in FILES}
EVERY = [(name, command) for name, commands in COMMANDS.items() for command in commands]
SAME = [
    line.format(name, CALLEE["kernel"])
    for name in FILES
    for line in (READ + UPDATES * (name == "kernel.snapshot")).splitlines()
    if line
]
"""Commands that are run on what they were made of, too."""
FOLDER = ("status . --json", "status .", "check .", "list .", "diff . ../plain")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all three, the files, and what they were made of."""
    house = tmp_path_factory.mktemp("house")
    shutil.copytree(ROOT / "ftpatch", house / "ftpatch", ignore=shutil.ignore_patterns("__py*"))
    (house / "stubs").symlink_to(ROOT / "stubs")
    for name, text in DROPPED.items():
        (house / f"ftpatch/image/containers/{name}.py").write_text(text.lstrip())
    for folder in ("boxed", "plain", "several"):
        (house / folder).mkdir()
    for name, (data, pack) in FILES.items():
        (house / "plain" / name).write_bytes(data)
        (house / "boxed" / name).write_bytes(pack(data))
        (house / "several" / name).write_bytes(pack(data))
    return house


@pytest.fixture(scope="module")
def results(house: Path) -> Mapping[str, Mapping[str, Result]]:
    """Of each folder what came of every command."""
    found = {"boxed": run_in_house(house, "boxed", [command for _, command in EVERY])}
    found["plain"] = run_in_house(
        house, "plain", [*SAME, "enable kernel.snapshot -o kernel.snapshot.own"]
    )
    return found | {"several": run_in_house(house, "several", list(FOLDER))}


def _wrapped(name: str) -> bool:
    return name.endswith((".crate", ".packed", ".twice"))


CHANGING = re.compile(r"(enable|disable|undo) \S+\.(crate|packed|twice)( |$)")


@pytest.mark.parametrize(("name", "command"), EVERY, ids=[command for _, command in EVERY])
def test_it_works_or_is_refused_in_one_line(
    results: Mapping[str, Mapping[str, Result]], name: str, command: str
) -> None:
    found = results["boxed"][command]
    assert found.code in (0, 1, 2, 125)
    assert "internal error" not in found.err and "Traceback" not in found.err
    if found.code in (2, 125):
        assert re.fullmatch(r"ftpatch: [^\n]+\n", found.err), found.err
    if _wrapped(name) and command in SAME:
        assert found == results["plain"][command]
    elif CHANGING.match(command):
        assert found.code == 2
        assert f"cannot be changed; extract it first: `ftpatch extract {name} -o" in found.err


@pytest.mark.parametrize("name", [name for name in FILES if _wrapped(name)])
def test_what_is_in_it_is_extracted(
    house: Path, results: Mapping[str, Mapping[str, Result]], name: str
) -> None:
    told = results["boxed"][f"extract {name} -o {name}.out --force --json"].only
    assert told["layers"] == ["gzip", "crate"][name != "kernel.twice" :]
    assert (house / "boxed" / f"{name}.out").read_bytes() == FILES[name][0]
    assert results["boxed"][f"diff {name} ../plain/{name}"].out == "nothing differs\n"


@pytest.mark.parametrize(
    "command",
    [line.format("kernel.snapshot", "ftrace_caller") for line in UPDATES.splitlines()[1:]],
)
def test_a_snapshot_is_updated_as_its_kernel(
    results: Mapping[str, Mapping[str, Result]], command: str
) -> None:
    def told(result: Result) -> Result:
        out = re.sub(r'"offset": \d+|offset 0x[0-9a-f]+|\d+ bytes as before', "PLACE", result.out)
        return Result(result.code, out.replace("snapshot", "vmlinux"), result.err)

    assert told(results["boxed"][command]) == told(results["plain"][command])


def test_a_snapshot_gets_the_bytes_that_its_kernel_gets(
    house: Path, results: Mapping[str, Mapping[str, Result]]
) -> None:
    assert results["boxed"]["status kernel.snapshot --json"].only["container"] == "snapshot"
    size = len(KERNEL)
    for name in ("to", "off", "nop", "own"):
        found, want = (house / of / f"kernel.snapshot.{name}" for of in ("boxed", "plain"))
        assert found.read_bytes()[16 : 16 + size] == want.read_bytes()[:size], name
    packed = FILES["kernel.snapshot"][1](KERNEL)
    assert (house / "boxed/kernel.snapshot.off").read_bytes()[: len(packed)] != packed
    assert (house / "boxed/kernel.snapshot.to").read_bytes() == packed  # after undo


def test_a_nanokernel_is_a_kernel(results: Mapping[str, Mapping[str, Result]]) -> None:
    said = results["boxed"]
    assert said["status kernel.uni --json"].only["container"] == "nanokernel"
    assert "ftrace failed to modify" in said["check kernel.uni"].out
    refused = said["enable kernel.uni --tracer function -o kernel.uni.function"].err
    assert "on programs, not on a nanokernel; use --tracer boot" in refused


def test_they_are_found_in_a_folder(results: Mapping[str, Mapping[str, Result]]) -> None:
    found = results["several"]["status . --json"].json
    assert {row["path"]: row["container"] for row in found} == {
        "kernel.crate": "vmlinux",
        "kernel.packed": "vmlinux",
        "kernel.twice": "vmlinux",
        "module.crate": "module",
        "program.crate": "executable",
        "kernel.snapshot": "snapshot",
        "kernel.uni": "nanokernel",
    }
    assert "7 images, 0 unreadable" in results["several"]["check ."].out


def test_a_command_of_its_own_reads_it_ahead(house: Path) -> None:
    words = [sys.executable, "-m", "ftpatch", "list", "kernel.twice"]
    done = subprocess.run(
        words,
        cwd=house / "several",
        env={"PYTHONPATH": str(house)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "vfs_read+0x0" in done.stdout, done.stderr


def test_what_is_cut_short_is_refused(house: Path) -> None:
    (house / "cut").mkdir()
    names = []
    for name in ("kernel.crate", "kernel.packed", "module.crate"):
        data = FILES[name][1](FILES[name][0])
        for length in (9, 10, 11, len(data) // 2, len(data) - 1):
            names.append(f"{name}.{length}")
            (house / "cut" / names[-1]).write_bytes(data[:length])
    for found in run_in_house(house, "cut", [f"status {name}" for name in names]).values():
        assert found.code == 2
        reason = "not an ELF file" if ".9: " in found.err else "truncated"
        assert re.fullmatch(rf"ftpatch: [^\n]*{reason}[^\n]*\n", found.err), found.err


@pytest.mark.parametrize("verb", ["status", "list", "check", "extract", "undo", "disable"])
@pytest.mark.parametrize("name", FILES)
def test_without_the_files_they_are_unknown(tmp_path: Path, name: str, verb: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name][1](FILES[name][0]))
    found = ftpatch(verb, path)
    if name == "kernel.uni":  # what is left of it
        assert ftpatch("status", path, "--json").only["container"] == "executable"
        return
    assert found.code == 2
    assert re.fullmatch(r"ftpatch: [^\n]+\n", found.err), found.err
    assert re.search("ELF file|nothing to extract", found.err), found.err
