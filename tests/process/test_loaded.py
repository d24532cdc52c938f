# SPDX-License-Identifier: MIT
"""Images in a process's memory: gdb says what stands there, /proc and readelf where."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ftpatch.arch import State
from ftpatch.errors import InputError
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.process import find_process
from tests.support.command import ftpatch
from tests.support.padded import padded
from tests.support.running import LIBRARY, PROGRAM, code_by_gdb, needs_gdb, running

pytestmark = needs_gdb


def _loaded(pid: int, name: str) -> Loaded:
    found, errors = loaded_images(find_process(pid))
    assert not errors
    (one,) = [one for one in found if one.path.name == name]
    assert one.there.any()  # now: the process may end
    return one


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return padded(tmp_path, PROGRAM)


@pytest.mark.parametrize("link", ["-pie", "-no-pie"])
def test_sites_are_as_gdb_shows_them(tmp_path: Path, link: str) -> None:
    path = padded(tmp_path, PROGRAM, link, "-fpie" if link == "-pie" else "-fno-pie")
    words = ("--tracer", "nop", "-f", "two", "--in-place")
    assert ftpatch("enable", path, *words).code == 0
    with running(path) as ran:
        one = _loaded(ran.pid, "prog")
        assert (one.bias == 0) == (link == "-no-pie")
        sites = one.sites
        for row in range(len(sites)):
            address = int(sites.ip[row]) + one.bias
            seen = code_by_gdb(ran.pid, address, int(sites.width[row]))
            assert sites.code[row, : sites.width[row]].tobytes() == seen
    names = {name: State(state) for name, state in zip(_names(one), sites.state, strict=True)}
    assert names == {"one": State.NOP, "two": State.CALL, "main": State.NOP}
    assert not one.differing.any() and not len(one.changed)


def _names(one: Loaded) -> list[str]:
    return [place.split("+")[0] for place in one.file.kallsyms.places(one.sites.ip)]


def test_a_library_is_there_too(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    library = padded(tmp_path / "lib", LIBRARY, "-shared", "-fpic").rename(
        tmp_path / "lib" / "l.so"
    )
    path = padded(tmp_path, PROGRAM)
    with running(path, LD_PRELOAD=str(library)) as ran:
        found, errors = loaded_images(find_process(ran.pid))
        maps = Path(f"/proc/{ran.pid}/maps").read_text()
        (one,) = [one for one in found if one.path == library]
        assert _names(one) == ["three", "four"]
    assert not errors and found[0].path == path
    starts: dict[Path, int] = {}
    for line in maps.splitlines():
        match = re.match(r"([0-9a-f]+)-\S+ \S+ 0+ \S+ \d+ +(/.*)", line)
        if match:
            starts.setdefault(Path(match[2]), int(match[1], 16))
    assert {one.path: one.bias for one in found} == starts, "all of these are linked at 0"


def test_code_that_differs_from_the_file(program: Path) -> None:
    with running(program) as ran:
        before = _loaded(ran.pid, "prog")
        row = _names(before).index("one")
        place = int(before.sites.ip[row]) + before.bias
        with Path(f"/proc/{ran.pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(place)
            memory.write(b"\xcc")
        after = _loaded(ran.pid, "prog")
    assert after.differing.tolist() == [name == "one" for name in _names(before)]
    assert after.changed.tolist() == [int(before.sites.offset[row])]
    assert State(after.sites.state[row]) == State.UNEXPECTED
    assert after.sites_of_file.state.tolist() == before.sites.state.tolist()


def test_a_file_that_was_deleted_or_replaced(program: Path) -> None:
    with running(program) as ran:
        wanted = _loaded(ran.pid, "prog").sites
        program.unlink()
        one = _loaded(ran.pid, "prog")
        assert one.deleted and one.sites.ip.tolist() == wanted.ip.tolist()
        program.write_bytes(b"\x7fELF" + bytes(100))
        one = _loaded(ran.pid, "prog")
        assert one.deleted and one.sites.code.tolist() == wanted.code.tolist()


def test_a_large_file_with_a_journal_that_was_deleted(program: Path) -> None:
    """Such a file is mapped, not read."""
    os.truncate(program, 65 << 20)
    assert ftpatch("enable", program, "--tracer", "nop", "-f", "two", "--in-place").code == 0
    with running(program) as ran:
        program.unlink()
        program.write_bytes(b"another")
        one = _loaded(ran.pid, "prog")
        states = dict(zip(_names(one), one.sites.state.tolist(), strict=True))
    assert states == {"one": State.NOP, "two": State.CALL, "main": State.NOP}


def test_files_that_are_no_images(tmp_path: Path) -> None:
    """What a just-in-time compiler maps, and a file that only begins as an image does."""
    source = r"""
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(argv[i], O_RDONLY), 0);
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    puts("ready"); fflush(stdout);
    return read(0, (char[1]){0}, 1);
}
"""
    code, broken = tmp_path / "code", tmp_path / "broken"
    code.write_bytes(bytes(4096))
    broken.write_bytes(b"\x7fELF" + bytes(4092))
    path = padded(tmp_path, source)
    with running(path, str(code), str(broken)) as ran:
        found, errors = loaded_images(find_process(ran.pid))
    assert code not in [one.path for one in found] and found[0].path == path
    assert [error.path for error in errors] == [str(broken)]


def test_what_is_no_process() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(InputError, match=f"^{ended.pid}: no such process; "):
        find_process(ended.pid)
    with pytest.raises(InputError, match="it is a kernel thread"):
        find_process(2)
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(InputError, match=r"\(true\): it has ended"):
            find_process(zombie.pid)


def test_a_name_with_parentheses(program: Path) -> None:
    odd = program.rename(program.with_name("a) S 1 (b"))
    with running(odd) as ran:
        process = find_process(ran.pid)
        assert process.name == "a) S 1 (b" and _loaded(ran.pid, odd.name).sites
