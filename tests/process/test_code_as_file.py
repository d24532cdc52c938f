# SPDX-License-Identifier: MIT
"""Code in memory against the file: gdb sets breakpoints and reads files, readelf tells relocations,
/proc what is mapped."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from ftpatch.cli.check_process import process_checks
from ftpatch.errors import FtpatchError, InputError
from ftpatch.ftrace.check.findings import Check, Finding
from ftpatch.process.code_as_file import check_loaded
from ftpatch.process.loaded import loaded_images
from ftpatch.process.process import find_process
from tests.support.command import child_env, ftpatch, ftpatch_command
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
BOTH = "actual:   {}\n expected: {}"


def _checks(pid: int) -> dict[Path, Check]:
    found, errors = loaded_images(find_process(pid))
    assert not errors
    return {one.path: check_loaded(one) for one in found}


def _findings(pid: int, path: Path) -> list[Finding]:
    """The findings of one image; the others must have none."""
    checks = _checks(pid)
    own = checks.pop(path).findings
    assert not [finding for check in checks.values() for finding in check.findings]
    return [finding for finding in own if finding.invariant == "code-as-file"]


def _code_of_file(path: Path, address: int, size: int) -> str:
    """Bytes of a file, by gdb."""
    words = ["gdb", "-batch", "-nx", "-ex", f"x/{size}xb {address:#x}", str(path)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = [line.partition(":\t")[2] for line in said.splitlines() if line.startswith("0x")]
    return ":".join(f"{int(word, 16):02x}" for row in rows for word in row.split())


def test_a_process_that_does_nothing_wrong(tmp_path: Path) -> None:
    path, library = program_with_library(tmp_path)
    with running(path) as program:
        checks = _checks(program.pid)
        assert {str(one) for one in checks} == set(starts_by_maps(program.pid))
        assert "[vdso]" in Path(f"/proc/{program.pid}/maps").read_text()
    assert not any(check.findings for check in checks.values())
    assert [one for one, check in checks.items() if not check.bare] == [path, library]
    assert {check.pid for check in checks.values()} == {program.pid}


def test_breakpoints_of_gdb(tmp_path: Path) -> None:
    path = padded(tmp_path, PROGRAM)
    out = tmp_path / "found"
    with running(path) as program:
        check = " ".join(ftpatch_command("check", "--json", "--pid", str(program.pid)))
        script = (
            "set breakpoint always-inserted on",
            "break *two",
            f"shell {check} >{out}",
            "info symbol two",
            "print &two",
        )
        words = [word for line in script for word in ("-ex", line)]
        gdb = ["gdb", "-nx", "-batch", "-p", str(program.pid), *words]
        said = subprocess.run(gdb, capture_output=True, text=True, check=True, env=child_env())
        assert ftpatch("check", "--pid", str(program.pid)).code == 0, "gdb has left"
    rows = [row for row in map(_row, out.read_text().splitlines()) if row["path"] == str(path)]
    (at,) = re.findall(r"(0x[0-9a-f]+) <two>", said.stdout)
    assert {(row["ip"], row["symbol"]) for row in rows} == {(at, "two+0x0")}
    (own,) = [row for row in rows if row["invariant"] == "code-as-file"]
    code = _code_of_file(path, address_by_nm(path, "two"), 5)
    assert own["bug"] == " " + BOTH.format("cc" + code[2:], code)
    assert own["message"] == "neither a NOP nor a call in memory, a NOP in the file"


def _row(line: str) -> dict[str, str]:
    row: dict[str, str] = json.loads(line)
    return row


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ([8], ["1 byte differs"]),
        ([8, 9, 10, 11, 12], ["5 bytes differ"]),
        ([8, 24], ["2 bytes differ"]),
        ([8, 25], ["1 byte differs", "1 byte differs"]),
    ],
)
def test_code_behind_a_site(tmp_path: Path, places: list[int], told: list[str]) -> None:
    """A hook, or two that are apart."""
    body = "n ^= n << 3; n += 77; " * 8
    source = PROGRAM.replace("return n + 1;", f"{body} return n;")
    path = padded(tmp_path, source)
    with running(path) as program:
        start = starts_by_maps(program.pid)[str(path)]
        link = address_by_nm(path, "one")
        for place in places:
            poked(program.pid, start + link + place, b"\x06")  # no instruction of x86-64
        found = _findings(program.pid, path)
    assert [finding.message for finding in found] == [f"{one} from the file" for one in told]
    assert [finding.ip for finding in found] == [
        start + link + place for place in (places if len(told) > 1 else places[:1])
    ]
    assert found[0].linked == link + 8 and found[0].symbol == "one+0x8"
    size = places[-1] - places[0] + 1 if len(told) == 1 else 1
    shown = min(size, 16)
    more = ":..." if size > shown else ""
    was = _code_of_file(path, link + 8, shown).split(":")
    is_ = ["06" if 8 + at in places else byte for at, byte in enumerate(was)]
    assert found[0].bug == " " + BOTH.format(":".join(is_) + more, ":".join(was) + more)


def test_functions_side_by_side(tmp_path: Path) -> None:
    """The last byte of one and the first one of the next."""
    bare = "__attribute__((patchable_function_entry(0, 0))) int two("
    path = padded(tmp_path, PROGRAM.replace("int two(", bare), "-fno-align-functions")
    with running(path) as program:
        start = starts_by_maps(program.pid)[str(path)]
        place = address_by_nm(path, "two")
        poked(program.pid, start + place - 1, b"\x06")
        poked(program.pid, start + place, b"\x06")
        found = _findings(program.pid, path)
    assert [finding.function for finding in found] == ["one", "two"]


def test_a_site_that_was_patched_while_it_ran(tmp_path: Path) -> None:
    path = padded(tmp_path, PROGRAM)
    with running(path) as program:
        start = starts_by_maps(program.pid)[str(path)]
        link = {name: address_by_nm(path, name) for name in ("one", "two")}
        far = (link["one"] - link["two"] - 5) % (1 << 32)
        poked(program.pid, start + link["two"], b"\xe8" + far.to_bytes(4, "little"))
        poked(program.pid, start + link["one"], bytes.fromhex("0f1f440000"))
        found = _findings(program.pid, path)
    assert [(one.symbol, one.message) for one in found] == [
        ("one+0x0", "another form of a NOP than the file has"),
        ("two+0x0", "a call to one in memory, a NOP in the file"),
    ]


def test_what_the_dynamic_linker_relocates(tmp_path: Path) -> None:
    """Code with relocations (DT_TEXTREL) is other code in memory, and that is how it should be."""
    source = PROGRAM.replace("int one(int n) {", "int held = 5;\nint one(int n) { n += held;")
    path = padded(tmp_path, source, *["-mcmodel=large", "-fno-pic", "-pie", "-Wl,-z,notext"])
    said = subprocess.run(["readelf", "-rW", path], capture_output=True, text=True, check=True)
    first, last = address_by_nm(path, "one"), address_by_nm(path, "main")
    entries = re.findall(r"^([0-9a-f]{16}) ", said.stdout, re.M)
    places = [int(at, 16) for at in entries if first <= int(at, 16) < last + 64]
    assert len(places) > 2
    with running(path) as program:
        start = starts_by_maps(program.pid)[str(path)]
        with Path(f"/proc/{program.pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(start + places[0])
            assert memory.read(8).hex(":") != _code_of_file(path, places[0], 8)
        assert _findings(program.pid, path) == []
        poked(program.pid, start + places[0] + 8, b"\x06")
        (found,) = _findings(program.pid, path)
        assert found.ip == start + places[0] + 8


def test_code_that_may_be_written(tmp_path: Path) -> None:
    """A segment with data and code; readelf says where its flags are."""
    path = padded(tmp_path, PROGRAM)
    said = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True)
    loads = re.findall(r"^  (\w+) .*?  ?(R[W ][E ]) ", said.stdout, re.M)
    (row,) = [row for row, (kind, flags) in enumerate(loads) if (kind, flags) == ("LOAD", "R E")]
    data = bytearray(path.read_bytes())
    data[64 + 56 * row + 4] |= 2  # p_flags of a 64-bit program header: PF_W
    path.write_bytes(data)
    with running(path) as program:
        assert " rwxp " in Path(f"/proc/{program.pid}/maps").read_text()
        assert _findings(program.pid, path) == []
        place = starts_by_maps(program.pid)[str(path)] + address_by_nm(path, "two")
        poked(program.pid, place, b"\xcc")
        assert [one.symbol for one in _findings(program.pid, path)] == ["two+0x0"]


def test_a_process_that_ends_meanwhile(tmp_path: Path) -> None:
    """That is one error, whatever is left to check."""
    path, _ = program_with_library(tmp_path)
    with running(path) as program:
        checks = process_checks([program.pid], functions=False)
        assert not isinstance(next(checks)[2], FtpatchError)
        program.kill()
        program.wait()
        (last,) = list(checks)
    assert str(last[2]).endswith("the process has ended")


def test_memory_that_is_no_images(tmp_path: Path) -> None:
    """What a just-in-time compiler makes: anonymous, and of a file without a name."""
    source = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    int fd = memfd_create("jit", 0);
    ftruncate(fd, 4096);
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    puts("ready"); fflush(stdout);
    return read(0, (char[1]){0}, 1);
}
"""
    path = padded(tmp_path, source)
    with running(path) as program:
        assert "/memfd:jit" in starts_by_maps(program.pid)
        assert _findings(program.pid, path) == []


def test_a_library_that_was_replaced(tmp_path: Path) -> None:
    """What is mapped is the file that it was, and memory is compared with that."""
    path, library = program_with_library(tmp_path)
    with running(path) as program:
        (tmp_path / "again").mkdir()
        other = program_with_library(tmp_path / "again")[1]
        data = bytearray(other.read_bytes())
        data[address_by_nm(other, "three")] ^= 0xFF
        other.write_bytes(data)
        other.replace(library)
        checks = _checks(program.pid)
        assert not checks[library].findings
        place = starts_by_maps(program.pid)[str(library)] + address_by_nm(library, "four") + 5
        poked(program.pid, place, b"\x06")
        result = ftpatch("check", "--pid", str(program.pid), "--format", "github")
    assert f"file={tmp_path / 'lib' / 'prog.c'},line=2," in result.out, "of the deleted file"


def test_a_library_that_was_closed(tmp_path: Path) -> None:
    source = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    void *l = dlopen(argv[1], RTLD_NOW);
    puts("ready"); fflush(stdout);
    read(0, (char[1]){0}, 1);
    dlclose(l);
    puts("closed"); fflush(stdout);
    return read(0, (char[1]){0}, 1);
}
"""
    (tmp_path / "it").mkdir()
    library = program_with_library(tmp_path / "it")[1]
    path = padded(tmp_path, source)
    with running(path, library) as program:
        found, _ = loaded_images(find_process(program.pid))
        (one,) = [one for one in found if one.path == library]
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(b"x")
        program.stdin.flush()
        assert program.stdout.readline() == b"closed\n"
        with pytest.raises(InputError, match="it is not loaded any more"):
            check_loaded(one)
