# SPDX-License-Identifier: MIT
"""Names, sources and owners of functions in traces, against c++filt and addr2line."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ftpatch.debuginfo.lines import Lines
from ftpatch.image import open_image
from ftpatch.names.demangle import demangled
from ftpatch.trace.symbolize import Program
from tests.support.command import ftpatch
from tests.support.trace_writer import (
    BASE,
    ENTRY,
    ENTRY_FROM,
    EXIT,
    FUNCTIONS,
    Thread,
    TraceFile,
    program,
)

SOURCE = """
#include <stddef.h>
namespace shapes {
template <typename T> struct Box {
    T value;
    __attribute__((noinline)) T twice(const T *other, size_t n) const { return value + other[n]; }
};
struct Odd { __attribute__((noinline)) bool operator()(int x) const { return x & 1; } };
}
__attribute__((noinline)) int walk(int a) { return a * 3; }
static __attribute__((noinline)) int hidden(int a) { return walk(a) + 1; }
int main(int argc, char **argv)
{
    shapes::Box<long> box{argc};
    long one[2] = {1, 2};
    return hidden(box.twice(one, 1)) + shapes::Odd()(argc);
}
"""
MANGLED = [
    "_Z4walki",
    "_ZNK6shapes3BoxIlE5twiceEPKlm",
    "_ZNSt6vectorISsSaISsEE9push_backEOSs",
    "_ZN3foo3barC1ERKS0_",
    "_ZL6hiddeni.cold",
    "_ZZ4mainENKUlvE_clEv",
    "_ZN4core3ptr85drop_in_place$LT$std..rt..lang_start$LT$$LP$$RP$$GT$$GT$17h0123456789abcdefE",
]
"""C++, and Rust's old scheme."""


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _built(folder: Path, compiler: str, *flags: str) -> Path:
    source, target = folder / "prog.cc", folder / "prog"
    source.write_text(SOURCE)
    command = [_tool(compiler), "-g", "-O1", *flags, str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def _functions(path: Path) -> dict[int, str]:
    """Address and name of those that the source defines, by nm."""
    out = subprocess.run([_tool("nm"), path], check=True, capture_output=True, text=True).stdout
    wanted = re.compile(r"_Z|main$")
    rows = (line.split() for line in out.splitlines())
    return {int(row[0], 16): row[2] for row in rows if len(row) == 3 and wanted.match(row[2])}


@pytest.mark.parametrize("name", MANGLED)
def test_names_are_those_of_cxxfilt(name: str) -> None:
    command = [_tool("c++filt"), name]
    expected = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert demangled(name) == expected.strip()


@pytest.mark.parametrize("name", ["main", "_Reset", "_Z", "_ZN", "_R", "_RN", "Z4walki", "", "_Zé"])
def test_what_is_not_mangled_stays(name: str) -> None:
    assert demangled(name) == name


def test_rust_names_of_the_new_scheme() -> None:
    assert demangled("_RNvCs1234_7mycrate3foo") == "mycrate::foo"


def test_a_name_that_expands_without_end_is_given_up() -> None:
    name = "_Z1f1AIiiE" + "".join(f"S_IS{i:X}_S{i:X}_E" for i in range(16)) * 3
    assert len(demangled(name)) < 1 << 17


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("flags", [(), ("-gz",), ("-fPIE", "-pie", "-ffunction-sections")])
def test_sources_are_those_of_addr2line(
    tmp_path: Path, compiler: str, version: int, flags: tuple[str, ...]
) -> None:
    path = _built(tmp_path, compiler, f"-gdwarf-{version}", *flags)
    addresses = list(_functions(path))
    command = [_tool("addr2line"), "-e", str(path), *map(hex, addresses)]
    expected = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    places = Lines(path).places(np.array(addresses, np.uint64))
    told = [re.sub(r" \(discriminator.*", "", line) for line in expected.splitlines()]
    assert [Path(place).name for place in places] == [Path(line).name for line in told]


def test_names_are_of_the_functions_around_the_sites(tmp_path: Path) -> None:
    path = _built(tmp_path, "g++")
    base = min(_functions(path))
    image = open_image(path)
    for plain in (True, False):
        site = Program(image, base, plain).sites(np.array([a - base + 1 for a in _functions(path)]))
        names, starts, known = Program(image, base, plain).lookup(site)
        expected = list(_functions(path).values())
        assert names == (expected if plain else [demangled(name) for name in expected])
        assert starts.tolist() == list(_functions(path)) and known.all()
    outside = np.array([0, 1 << 40, (1 << 64) - 1, int(image.elf.loads[-1, 0])], np.uint64)
    assert Program(image, base).lookup(outside)[0] == [hex(at) for at in outside.tolist()]


def test_a_report_with_names_and_sources(tmp_path: Path) -> None:
    path = _built(tmp_path, "g++")
    functions = {name: at for at, name in _functions(path).items()}
    base, walk = min(functions.values()), functions["_Z4walki"]
    thread = Thread(1).add(ENTRY, walk - base + 1, 1).add(EXIT, walk - base + 1, 3)
    header: dict[str, int | bytes] = {"path": bytes(path), "base": base}
    trace = TraceFile([thread], header=header).write(tmp_path / "trace")
    line = SOURCE.splitlines().index(next(x for x in SOURCE.splitlines() if "walk(int a)" in x)) + 1
    out = ftpatch("report", trace, "--source").out
    assert re.search(rf" walk\(int\); /\* \S*prog.cc:{line} \*/\n", out)
    assert "_Z4walki();" in ftpatch("report", trace, "--no-demangle").out
    (row, _) = ftpatch("report", "--json", "--source", trace).json
    assert row["source"].endswith(f"prog.cc:{line}") and row["function"] == "walk(int)"
    for form in ("profile", "function", "chrome", "flamegraph"):
        assert f"prog.cc:{line}" in ftpatch("report", "--source", "--format", form, trace).out
    bare = program(tmp_path / "bare")
    result = ftpatch("report", "--source", "--image", bare, trace)
    assert result.code == 0 and "no debug information" in result.err


def test_callers_lie_where_the_program_was_loaded(tmp_path: Path) -> None:
    bias = 0x5555_0000_0000
    after = bias + BASE + FUNCTIONS.index("parse") * 0x20 + 0x12
    thread = (
        Thread(1).add(ENTRY_FROM, "walk", 1, after).add(ENTRY_FROM, "hash", 2, 0x7FFF_0000_1234)
    )
    header: dict[str, int | bytes] = {"tracer": 1, "bias": bias}
    header["path"] = bytes(program(tmp_path / "prog"))
    trace = TraceFile([thread], header=header).write(tmp_path / "trace")
    out = ftpatch("report", trace).out
    assert ": walk <-parse\n" in out and ": hash <-0x7fff00001234\n" in out
    rows = ftpatch("report", "--json", trace).json
    assert [row["parent"] for row in rows] == ["parse", "0x7fff00001234"]
    assert rows[0]["ip"] == hex(after)


def test_a_trace_of_another_image_is_refused(tmp_path: Path) -> None:
    path = program(tmp_path / "prog")
    right = hashlib.sha256(path.read_bytes()).digest()
    thread = Thread(1).add(ENTRY, "main", 1)
    for own, code in ((right, 0), (bytes(32), 0), (b"\1" * 32, 2)):
        header: dict[str, int | bytes] = {"path": bytes(path), "image_id": own}
        trace = TraceFile([thread], header=header).write(tmp_path / "trace")
        result = ftpatch("report", trace)
        assert result.code == code, result
        if code:
            assert "not a trace of" in result.err and "--force" in result.err
            assert ftpatch("report", trace, "--force").code == 0


def test_without_the_image_there_are_addresses(tmp_path: Path) -> None:
    thread = Thread(1).add(ENTRY, "main", 1)
    trace = TraceFile([thread], header={"path": b"/nowhere"}).write(tmp_path / "trace")
    result = ftpatch("report", trace)
    assert result.code == 0 and "0x401004() {" in result.out
    assert result.err.startswith("ftpatch: /nowhere: cannot read") and "--image" in result.err
    assert ftpatch("report", trace, "--image", "/nowhere").code == 2
    assert "main() {" in ftpatch("report", trace, "--image", program(tmp_path / "prog")).out
