# SPDX-License-Identifier: MIT
"""The calls that led to a probe's hits: gdb's backtrace is the same at the same hit."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from ftpatch.errors import UsageError
from ftpatch.probe import definition_text, parse_probe
from tests.support.command import ftpatch
from tests.support.stack_oracle import SOURCE, Oracle, gdb_calls
from tests.support.tracer_programs import run

PLUS = r"""
#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace shop {
static volatile int held;

struct Item {
        virtual ~Item() = default;
        virtual int priced(int n) const = 0;
};

extern "C" [[gnu::noinline, gnu::noclone]] int leaf(int n)
{
        held = held + n;
        return n * 3;
}

template <typename T> struct Sold : Item {
        T by;
        explicit Sold(T by) : by(by) {}
        [[gnu::noinline]] int priced(int n) const override
        {
                return leaf(n * static_cast<int>(by)) + held;
        }
};

[[gnu::noinline]] int thrown(int n)
{
        if (n > 2)
                throw std::runtime_error(std::to_string(leaf(n)));
        return leaf(n) + held;
}
}

int main()
{
        std::vector<int> numbers{4, 2, 8, 1};
        std::unique_ptr<shop::Item> items[2];
        int sum = 0;

        items[0] = std::make_unique<shop::Sold<int>>(2);
        items[1] = std::make_unique<shop::Sold<double>>(3.5);
        std::sort(numbers.begin(), numbers.end(),
                  [](int a, int b) { return shop::leaf(a) < shop::leaf(b); });
        for (int n : numbers) {
                sum += items[n % 2]->priced(n);
                try {
                        sum += shop::thrown(n);
                } catch (const std::exception &) {
                        sum += shop::leaf(100);
                }
        }
        std::printf("%d\n", sum);
}
"""
POINTERS = "-O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer"


def _built(folder: Path, flags: str, source: str = SOURCE) -> Path:
    program = folder / "prog"
    text = folder / f"prog.{'c' if source is SOURCE else 'cc'}"
    text.write_text(source)
    compiler = "gcc" if source is SOURCE else "g++"
    command = [compiler, *flags.split(), "-pthread", "-w", str(text), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def _recorded(program: Path, probes: list[str], *words: str) -> dict[str, list[dict[str, object]]]:
    """The events of each probe."""
    probed = program.with_name(f"{program.name}.probed")
    done = ftpatch("probe", program, *probes, "-o", probed, "--force")
    assert done.code == 0, done.err
    trace = program.with_name("trace")
    trace.unlink(missing_ok=True)
    outcome = run(probed, list(words), cwd=program.parent, env={"FTPATCH_TRACE": str(trace)})
    assert outcome.status == 0, outcome
    found: dict[str, list[dict[str, object]]] = {}
    for line in ftpatch("report", trace, "--json").out.splitlines():
        row = json.loads(line)
        if "time" in row:
            found.setdefault(row["probe"], []).append(row)
    return found


@pytest.mark.parametrize("strip", ["", "stripped"])
@pytest.mark.parametrize("pie", ["-pie", "-no-pie"])
@pytest.mark.parametrize("flags", ["-O0", "-O2", POINTERS], ids=["O0", "O2", "fp"])
def test_calls_are_those_of_gdb(tmp_path: Path, flags: str, pie: str, strip: str) -> None:
    """At a function's entry, in its middle and where it returns; also where return addresses are
    replaced."""
    kind = "-fPIE -pie" if pie == "-pie" else "-fno-pie -no-pie"
    program = _built(tmp_path, f"{flags} {kind}")
    oracle = Oracle(program)
    base = 0 if pie == "-pie" else 0x400000
    (leaf,), (deep,) = oracle.own["leaf"], oracle.own["deep"]
    middle = _after_prologue(program, "sized")
    if strip:
        subprocess.run(["strip", str(program)], check=True)
    expected = gdb_calls(program, [leaf, middle], base)
    probes = [
        f"p:entry {leaf:#x} stack",
        f"r:back {leaf:#x} stack",
        f"r:apart {deep:#x} ret=%ax",
        f"p:few {leaf:#x} stack(2)",
        f"p:mid {middle:#x} stack",
    ]
    events = _recorded(program, probes)
    if strip:
        oracle.own = {}
    assert len(events["entry"]) == len(expected[leaf])
    assert len(expected[middle]) == 1
    for name, calls, few in (("entry", expected[leaf], None), ("few", expected[leaf], 2)):
        for event, one in zip(events[name], calls, strict=True):
            oracle.require_same(event["stack"], one[:few])  # type: ignore[arg-type]
            assert event.get("stack_cut", False) == (few is not None)
    for event, one in zip(events["back"], expected[leaf], strict=True):
        oracle.require_same(event["stack"], one[1:])  # type: ignore[arg-type]
    oracle.require_same(events["mid"][0]["stack"], expected[middle][0])  # type: ignore[arg-type]


def _after_prologue(program: Path, name: str) -> int:
    """The address of a call in the middle of a function."""
    done = subprocess.run(
        ["objdump", "-d", f"--disassemble={name}", str(program)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"^ *([0-9a-f]+):.*\bcall .*<leaf>", done.stdout, re.MULTILINE)
    assert found, done.stdout
    return int(found[1], 16)


def test_calls_of_plus_are_those_of_gdb(tmp_path: Path) -> None:
    """Templates, virtual functions, a library's callback, and what is thrown."""
    program = _built(tmp_path, "-O2", PLUS)
    oracle = Oracle(program)
    (leaf,) = oracle.own["leaf"]
    expected = gdb_calls(program, [leaf], 0)[leaf]
    done = ftpatch("probe", program, "p:l leaf stack", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    run(tmp_path / "out", cwd=tmp_path, env={"FTPATCH_TRACE": str(tmp_path / "trace")})
    lines = ftpatch("report", tmp_path / "trace", "--json", "--no-demangle").out.splitlines()
    rows = [json.loads(line) for line in lines[:-1]]
    assert len(rows) == len(expected) > 10
    for row, calls in zip(rows, expected, strict=True):
        oracle.require_same(row["stack"], calls)


def test_frame_pointers(tmp_path: Path) -> None:
    """The walk finds what gdb does, as far as all code keeps them: up to the library's."""
    program = _built(tmp_path, POINTERS)
    oracle = Oracle(program)
    (leaf,) = oracle.own["leaf"]
    expected = gdb_calls(program, [leaf], 0)[leaf]
    words = ["p:l leaf stack:fp", "p:few leaf stack(2):fp", "r:back leaf stack:fp", "r:x deep"]
    events = _recorded(program, words)
    for at, (event, calls) in enumerate(zip(events["l"], expected, strict=True)):
        own = next((row for row, (file, _) in enumerate(calls) if file), len(calls))
        oracle.require_same(event["stack"][: own + 1], calls[: own + 1])  # type: ignore[index]
        back, few = events["back"][at]["stack"], events["few"][at]
        oracle.require_same(back[:own], calls[1 : own + 1])  # type: ignore[index]
        oracle.require_same(few["stack"], calls[:2])  # type: ignore[arg-type]
        assert few["stack_cut"]


def test_a_deep_stack_is_cut(tmp_path: Path) -> None:
    """What is there are the innermost calls, and that there are more is said."""
    program = _built(tmp_path, "-O2")
    words = ["p:l leaf n=$arg1:s32 stack", "p:f leaf stack:fp"]
    first = _recorded(program, words, "3000")["l"][0]
    stack = first["stack"]
    assert first["stack_cut"] and isinstance(stack, list) and 100 < len(stack) <= 127
    assert len(set(stack[2:])) == 1 and stack[2].startswith("deep+"), stack
    text = ftpatch("report", tmp_path / "trace").out.split(": l: ")[1]
    assert text.splitlines()[len(stack) + 1] == " => ...", text


def test_each_stack_is_counted_once(tmp_path: Path) -> None:
    """Folded stacks are those of the events; of several probes, each has its own."""
    program = _built(tmp_path, "-O2")
    events = _recorded(program, ["p:l leaf stack", "r:back leaf stack"])
    done = ftpatch("report", tmp_path / "trace", "--format", "folded")
    pairs = [line.rpartition(" ") for line in done.out.splitlines()]
    counts = {path: int(number) for path, _, number in pairs}
    assert sum(counts.values()) == len(events["l"]) + len(events["back"])
    wanted = [row for row in events["l"] if str(row["stack"]).count("deep+") == 4]
    (path,) = [one for one in counts if one.startswith("l;_start;") and one.count(";deep") == 4]
    assert counts[path] == len([row for row in wanted if "main" in str(row["stack"])]) == 1
    assert path.endswith(";main;deep;deep;deep;deep;leaf")
    assert path.replace("l;", "back;", 1) in counts, "of a return the function itself is there"
    done = ftpatch("report", tmp_path / "trace", "--format", "flamegraph")
    assert done.code == 0 and '"unit":"hits"' in done.out


def test_a_running_program_and_its_libraries(tmp_path: Path) -> None:
    program = _built(tmp_path, "-O2")
    words = ["p:l leaf stack", "p:w libc.so.6:write stack(6)"]
    folded = tmp_path / "folded"
    done = ftpatch("probe", "-c", str(program), *words, "--report", f"folded={folded}")
    assert done.code == 0, done.err
    lines = folded.read_text().splitlines()
    assert any(line.startswith("l;_start;__libc_start_main;") for line in lines), lines
    assert any(line.startswith("w;...;") and ";write " in line for line in lines), lines


@pytest.mark.parametrize("byte", [0x00, 0x0F, 0x41, 0x80, 0xFF])
def test_damaged_unwind_information(tmp_path: Path, byte: int) -> None:
    """Stacks end where it does, and everything else is reported."""
    program = _built(tmp_path, "-O2")
    _recorded(program, ["p:l leaf stack"])
    probed = program.with_name("prog.probed")
    raw = bytearray(probed.read_bytes())
    words = ["readelf", "-SW", str(probed)]
    sections = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"\.eh_frame +PROGBITS +\S+ (\S+) (\S+)", sections)
    assert found, sections
    at, size = (int(text, 16) for text in found.groups())
    raw[at : at + size] = bytes([byte]) * size
    damaged = tmp_path / "damaged"
    damaged.write_bytes(raw)
    done = ftpatch("report", tmp_path / "trace", "--image", damaged, "--force", "--json")
    assert done.code == 0 and "internal" not in done.err, done.err
    rows = done.json[:-1]
    assert rows and all(row["stack_cut"] for row in rows)
    assert all(len(row["stack"]) < 3 for row in rows), rows


def test_a_library_that_is_gone(tmp_path: Path) -> None:
    """The report says what could not be read, and the stack ends there."""
    (tmp_path / "far.c").write_text("int far(int (*to)(int)) { return to(1) + 1; }\n")
    (tmp_path / "near.c").write_text(
        "int far(int (*to)(int));\n"
        "__attribute__((noinline)) int near(int n) { return n * 3; }\n"
        "int main(void) { return far(near) != 4; }\n"
    )
    library, program = tmp_path / "libfar.so", tmp_path / "near"
    for words in (
        ["-O2", "-shared", "-fPIC", "far.c", "-o", str(library)],
        ["-O2", "near.c", str(library), "-o", str(program)],
    ):
        subprocess.run(["gcc", *words], cwd=tmp_path, check=True)
    done = ftpatch("probe", program, "p:n near stack", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    trace = tmp_path / "trace"
    run(tmp_path / "out", cwd=tmp_path, env={"FTPATCH_TRACE": str(trace)})
    whole = ftpatch("report", trace, "--json").json[0]["stack"]
    assert [text.partition("+")[0] for text in whole[:3]] == ["near", "far", "main"]
    library.unlink()
    done = ftpatch("report", trace, "--json")
    assert done.json[0]["stack"][1].startswith("libfar.so+") and len(done.json[0]["stack"]) == 2
    assert done.json[0]["stack_cut"] and f"{library}: cannot read" in done.err, done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("stack(0)", "invalid depth: '0' at column 14"),
        ("stack(128)", "1 to 127"),
        ("stack(", "invalid stack"),
        ("stack:dwarf", "no such way to find the calls"),
        ("stack stack(3)", "stack is given twice"),
        ("stack hist:keys=$arg1", "a histogram records no stacks"),
    ],
)
def test_refused(tmp_path: Path, words: str, said: str) -> None:
    done = ftpatch("probe", _built(tmp_path, "-O0"), f"p leaf {words}", "-o", tmp_path / "out")
    assert done.code == 2 and said in done.err and len(done.err.splitlines()) == 1, done.err


def test_a_kernel_has_none() -> None:
    with pytest.raises(UsageError, match=r"a kernel's probes record no stacks.*trigger"):
        parse_probe("p do_open stack", ["ax"], arguments=6, kernel=True)


@pytest.mark.parametrize("text", ["stack", "stack(5)", "stack:fp", "stack(127)", "stack(0x10):fp"])
def test_what_is_printed_reads_the_same(text: str) -> None:
    one = parse_probe(f"p main n=$arg1 {text}", ["ax"], arguments=6)
    assert one.stack is not None
    assert parse_probe(definition_text(one), ["ax"], arguments=6) == one
