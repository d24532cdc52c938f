# SPDX-License-Identifier: MIT
"""The layouts that are kept: made of the headers beside them, right by gcc, the same everywhere."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ftpatch.core.byte_order import BIG, LITTLE, ByteOrder
from ftpatch.layout import constants, offset_of, pack, structure, unpack
from tests.support.command import ROOT

STUBS, KEPT = ROOT / "stubs", ROOT / "ftpatch" / "layout"
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json"))}
COMPILED = {path.parent.name: path.read_text() for path in STUBS.glob("*/arch.mk")}
PREFIX = {
    arch: re.findall(r"^COMPILER := (\S+)-gcc$", text, re.M)[0] for arch, text in COMPILED.items()
}
FLAGS = ["-std=gnu11", "-ffreestanding", "-Iruntime", "-Ireader", "-Iinclude"]
INCLUDES = (
    "system_calls.h",
    "ftrace_regs.h",
    "libraries.h",
    "lookups.h",
    "probes.h",
    "profile.h",
    "tally.h",
    "watch.h",
)
every_arch = pytest.mark.parametrize("arch", FILES)


def _gcc(arch: str) -> str:
    found = shutil.which(f"{PREFIX[arch]}-gcc")
    if found is None:
        pytest.skip(f"no {PREFIX[arch]}-gcc")
    return found


def _make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-s", "-C", str(folder), f"PYTHON={sys.executable}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@every_arch
def test_made_of_these_headers(arch: str, tmp_path: Path) -> None:
    """By whichever version of the compiler."""
    _gcc(arch)
    made = [tmp_path / "layout" / f"{arch}.json", tmp_path / arch / "offsets.h"]
    done = _make(STUBS, f"ARCHES={arch}", f"OUT={tmp_path}", *map(str, made))
    assert done.returncode == 0, done.stderr
    kept = [KEPT / f"{arch}.json", STUBS / "built" / arch / "offsets.h"]
    assert [path.read_text() for path in made] == [path.read_text() for path in kept]


def _asserted(arch: str, layout: dict[str, Any]) -> str:
    """A C file that compiles where gcc agrees with a layout."""
    lines = ["#define PROBES", "#define WATCH", "struct context;", "struct registers;"]
    lines += [f'#include "{name}"' for name in INCLUDES]
    facts = [f"(u64){name} == {value}ull" for name, value in layout["constants"].items()]
    for name, one in layout["structures"].items():
        facts.append(f"sizeof(struct {name}) == {one['size']}")
        for member, its in one["members"].items():
            facts.append(f"__builtin_offsetof(struct {name}, {member}) == {its['at']}")
            base = its["type"]
            size = f"sizeof({base})" if base.startswith("struct ") else _bits(base) // 8
            if its.get("count") != 0:
                whole = f"sizeof(((struct {name} *)0)->{member})"
                facts.append(f"{whole} == {its.get('count', 1)} * {size}")
    return "\n".join([*lines, *(f'_Static_assert({fact}, "");' for fact in facts)]) + "\n"


def _bits(name: str) -> int:
    return 8 if name == "char" else int(name[1:])


@every_arch
def test_gcc_agrees(arch: str, tmp_path: Path) -> None:
    """Its offsetof and sizeof, for every member of every structure; and it finds one that is not
    so."""
    gcc = _gcc(arch)
    own = re.findall(r"^FLAGS := (.*)$", COMPILED[arch], re.M)[0].split()

    def compiles(layout: dict[str, Any]) -> bool:
        source = tmp_path / "facts.c"
        source.write_text(_asserted(arch, layout))
        words = [gcc, *FLAGS, *own, f"-I{arch}", "-fsyntax-only", str(source)]
        done = subprocess.run(words, cwd=STUBS, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "static assertion failed" in done.stderr, done.stderr
        return done.returncode == 0

    layout = FILES[arch]
    assert len(layout["structures"]) > 15
    assert compiles(layout)
    wrong = json.loads(json.dumps(layout))
    wrong["structures"]["stub_config"]["members"]["clock"]["at"] += 4
    assert not compiles(wrong)


def _asked() -> set[str]:
    """Structures that the package asks for without saying of which architecture."""
    found = set()
    places = {"structure": 1, "offset_of": 2, "pack": 2, "unpack": None}
    for path in (ROOT / "ftpatch").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in places:
                continue
            last = places[ast.unparse(node.func)]
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant) and (last is None or len(node.args) <= last):
                found.add(str(name.value))
    return found


def test_same_on_all_architectures() -> None:
    """What Python asks for without an architecture, and every constant that it knows."""
    asked = _asked()
    assert {"trace_header", "stub_config", "probe_table", "hook", "library"} <= asked
    assert "library_hook" not in asked
    for name in asked | {"trace_library"}:
        assert len({json.dumps(layout["structures"][name]) for layout in FILES.values()}) == 1, name
    for name, value in constants.items():
        assert {layout["constants"].get(name, value) for layout in FILES.values()} == {value}, name


@pytest.mark.parametrize("order", [LITTLE, BIG])
def test_packs_what_it_unpacks(order: ByteOrder) -> None:
    """Members at their places, to the last bit of each; nothing is cut that does not fit."""
    values: dict[str, Any] = {
        "magic": b"FTPTRACE",
        "size": (1 << 64) - 1,
        "lost": list(range(5)),
        "image_id": bytes(range(31, -1, -1)),
        "path": b"/a b",
    }
    raw = pack("trace_header", order, **values)
    assert len(raw) == structure("trace_header").itemsize
    held = unpack("trace_header", order, b"..." + raw, 3)
    assert {name: held[name] for name in values} == values
    assert not any(held[name] for name in held.keys() - values)
    at = offset_of("trace_header", "image_id")
    assert raw[at : at + 32] == values["image_id"]
    first = struct.unpack_from(
        ">5Q" if order.big else "<5Q", raw, offset_of("trace_header", "lost")
    )
    assert list(first) == values["lost"]
    for wrong in (-1, 1 << 32):
        with pytest.raises(OverflowError):
            pack("trace_header", order, pid=wrong)
    with pytest.raises(ValueError):
        unpack("trace_header", order, raw[:-1])
    assert offset_of("library_hook", "delta", "i386") == offset_of("library_hook", "delta", "arm64")
    sizes = {arch: structure("library_hook", arch)["delta"].itemsize for arch in FILES}
    assert sizes == {
        "x86_64": 8,
        "i386": 4,
        "arm64": 8,
        "riscv64": 8,
        "ppc64le": 8,
        "s390x": 8,
        "arm": 4,
        "loongarch64": 8,
    }


PROGRAM = """
#include <stdio.h>
__attribute__((noinline)) int inner(int n) { return n * 3; }
int main(void) { return printf("%d\\n", inner(14)) != 3; }
"""


def _swapped(folder: Path, header: str, first: str, second: str) -> Path:
    """A copy of the project in which two lines of a header changed places."""
    for name in ("stubs", "ftpatch"):
        shutil.copytree(ROOT / name, folder / name)
    path = folder / "stubs" / "runtime" / header
    lines = path.read_text().splitlines(keepends=True)
    (one,) = (i for i, line in enumerate(lines) if line.startswith(f"\t{first};"))
    (two,) = (i for i, line in enumerate(lines) if line.startswith(f"\t{second};"))
    lines[one], lines[two] = lines[two], lines[one]
    path.write_text("".join(lines))
    return folder


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="runs an x86-64 program")
def test_swapped_fields_work_throughout(tmp_path: Path) -> None:
    """Of the configuration, which Python writes, and C and assembly read: after `make` the program
    runs and is traced."""
    for arch in FILES:
        _gcc(arch)
    copy = _swapped(tmp_path, "runtime.h", "u64 self", "u64 caller")
    layouts = [f"../ftpatch/layout/{arch}.json" for arch in FILES]
    done = _make(copy / "stubs", *layouts, "built/x86_64/function_graph.elf")
    assert done.returncode == 0, done.stderr
    swapped = json.loads((copy / layouts[0].removeprefix("../")).read_text())
    members = swapped["structures"]["stub_config"]["members"]
    assert members["self"]["at"] == offset_of("stub_config", "caller")
    assert members["caller"]["at"] == offset_of("stub_config", "self")
    source, program = tmp_path / "prog.c", tmp_path / "prog"
    source.write_text(PROGRAM)
    pad = "-fpatchable-function-entry=5"
    subprocess.run(["gcc", "-O1", pad, str(source), "-o", str(program)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(copy), "FTPATCH_TRACE": str(tmp_path / "trace")}

    def run(*words: str) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    own = (sys.executable, "-m", "ftpatch")
    run(*own, "enable", str(program), "--tracer", "function_graph", "-o", str(tmp_path / "traced"))
    assert run(str(tmp_path / "traced")) == "42\n"
    report = run(*own, "report", str(tmp_path / "trace"))
    assert "main()" in report and "inner()" in report


@pytest.mark.parametrize(
    ("header", "first", "second", "place"),
    [
        ("trace.h", "u32 pid", "u32 ppid", "trace_header.pid"),
        ("runtime.h", "struct frame *top", "struct thread *next", "thread.top"),
    ],
)
def test_swapped_fields_of_what_is_fixed_do_not_compile(
    header: str, first: str, second: str, place: str, tmp_path: Path
) -> None:
    """Files of earlier versions would be misread; unwinders would go astray."""
    _gcc("x86_64")
    copy = _swapped(tmp_path, header, first, second)
    done = _make(copy / "stubs", "ARCHES=x86_64", "../ftpatch/layout/x86_64.json")
    assert done.returncode
    assert f"place of {place}" in done.stderr
