# SPDX-License-Identifier: MIT
"""Values that a probe names as Rust's source does: gdb prints the same, in the same program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.probe.test_source_values import GONE, _gdb, _named, _recorded
from tests.support.command import ftpatch

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64"),
    pytest.mark.skipif(shutil.which("rustc") is None, reason="rustc is not installed"),
]
SOURCE = Path(__file__).parent.parent / "programs" / "values.rs"
SELL = (
    "qty", "yes", "customer.color", "customer.level", "customer.vip", "customer.letter",
    "customer.age", "customer.debt", "customer.at.x", "customer.at.y", "customer.pair.0",
    "customer.pair.1", "customer.both.0", "customer.both.1", "customer.grid[1][2]",
    "customer.best", "customer.none", "customer.maybe", "customer.shape", "customer.boxed.y",
    "*customer.raw", "customer.tags.len", "customer.owned.vec.len", "customer.name.length",
    "slice.length", "name.length",
)  # fmt: skip
BY_VALUE = ("p.x", "p.y", "pair.0", "pair.1", "both.0", "both.1", "c", "color", "o", "s")
FUNCTIONS = {
    "cart::cart::sell": (SELL, 2),
    "cart::cart::by_value": (BY_VALUE, 2),
    "cart::cart::Cart::add": (("self.n", "n", "self.items.len"), 2),
    "<cart::cart::Cart as cart::cart::Shop>::buy": (("self.n", "n"), 2),
    "cart::cart::Cart::total": (("self.n", "x"), 1),
    "cart::cart::most::<i32>": (("a", "b"), 2),
    "cart::cart::most<u8>": (("a", "b"), 2),
    "cart::main::{closure#0}": (("x",), 2),
    "cart::apply": (("n",), 2),
}
"""The values at each function's entry, and how often main calls it."""
GDB_FAILS = ("o", "s")
"""Enums of which parts are in registers: gdb 13 ends in an assertion (gdbtypes.h, num_fields)."""
VARIANT = re.compile(r"[\w:<>&, ]*::(\w+)(?:\(.*\)|\{.*\})?")
FORMS = [("0", ()), ("2", ()), ("0", ("-C", "symbol-mangling-version=v0")), ("0", ("5",))]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, tuple[str, ...]], Path]:
    """The programs, each in a folder of its own."""
    out = {}
    for level, more in FORMS:
        program = tmp_path_factory.mktemp("rust") / "cart"
        flags = ["-C", "dwarf-version=5"] if more == ("5",) else [*more]
        words = ["rustc", "--crate-name", "cart", "-g", "-C", f"opt-level={level}", *flags]
        words += ["-C", "relocation-model=static", "-A", "warnings"]
        done = subprocess.run(
            [*words, SOURCE, "-o", program], capture_output=True, text=True, check=False
        )
        if "unknown codegen option" in done.stderr:
            continue
        assert done.returncode == 0, done.stderr
        out[level, more] = program
    return out


def _settled(program: Path) -> list[int]:
    """Where statements begin, as objdump reads the line table."""
    words = ["objdump", "--dwarf=decodedline", str(program)]
    table = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^\S+\s+\d+\s+0x([0-9a-f]+)(?:\[\d+\])?\s.*x\b", table, re.M)
    return sorted(int(one, 16) for one in rows)


def _known(program: Path, level: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The address of each function that is there, and its names that can be fetched."""
    wanted = [
        (f, name)
        for f, (names, _) in FUNCTIONS.items()
        for name in names
        if level == "0" or name not in GDB_FAILS
    ]
    probes = [f"p:n{number} {f} {name}" for number, (f, name) in enumerate(wanted)]
    done = ftpatch("probe", program, *probes, "--dry-run", "--keep-going", "--json")
    out: dict[str, tuple[int, tuple[str, ...]]] = {}
    for row in done.json:
        function, name = wanted[int(str(row["name"])[1:])]
        _, names = out.get(function, (0, ()))
        out[function] = int(str(row["address"]), 16), (*names, name)
    if level == "0":
        assert not done.err and {f: names for f, (_, names) in out.items()} == {
            f: names for f, (names, _) in FUNCTIONS.items()
        }
    reasons = ("optimised away", "in no register that", "not told where", "no such function")
    refused = [line for line in done.err.splitlines() if not any(one in line for one in reasons)]
    assert not refused
    return out


def _theirs(text: str) -> str:
    found = VARIANT.fullmatch(text)
    return found[1] if found else text


@pytest.mark.parametrize("form", FORMS, ids=["O0", "O2", "v0-O0", "dwarf5-O0"])
def test_rust_as_gdb_prints_it(
    form: tuple[str, tuple[str, ...]], built: dict[tuple[str, tuple[str, ...]], Path]
) -> None:
    if form not in built:
        pytest.skip("this rustc does not know the option")
    program, unoptimised = built[form], form[0] == "0"
    known, settled = _known(program, form[0]), _settled(program)
    commands, wanted, hits = list[str](), list[tuple[str, str]](), 0
    for function, (entry, names) in known.items():
        behind = next(one for one in settled if one > entry)
        prints = [f"print {name}" for name in names]
        times = FUNCTIONS[function][1]
        commands += ["delete", f"break *{behind if unoptimised else entry:#x}", "run", *prints]
        commands += ["continue", *prints] * (times - 1)
        wanted += [(function, name) for name in names] * times
        hits += times
    expected = _gdb(program, *commands)
    probes = [
        f"p:f{number} {function} {_named(names)}"
        for number, (function, (_, names)) in enumerate(known.items())
    ]
    rows = _recorded(program, *probes)
    assert len(rows) == hits
    rows.sort(key=lambda row: int(str(row["probe"])[1:]))
    mine = [str(value) for row in rows for value in row["values"].values()]  # type: ignore[attr-defined]
    pairs = zip(wanted, mine, map(_theirs, expected), strict=True)
    assert not [pair for pair in pairs if pair[1] != pair[2] and pair[2] not in GONE]
    unknown = sum(one in GONE for one in expected)
    assert len(expected) >= (90 if unoptimised else 60)
    assert unknown < len(expected) // (20 if unoptimised else 4)


def test_variants_and_elements(built: dict[tuple[str, tuple[str, ...]], Path]) -> None:
    """What main passes is in the source."""
    rows = _recorded(
        built["0", ()],
        "p:a cart::cart::sell s0=slice[0] customer.shape.Rect.w customer.shape.Rect.h"
        " b=customer.best.Some.0.x m=customer.maybe.Some.0 if qty > 0",
        "p:b cart::cart::by_value o n=o.Some.0 s c=s.Circle.0 if p.y == 2 && color == 9",
    )
    assert [row["values"] for row in rows] == [
        {"s0": 1, "w": 3, "h": 4, "b": 11, "m": 77},
        {"o": "Some", "n": 8, "s": "Circle", "c": 9},
    ]


REFUSED = [
    ("p cart::cart::most", "'cart::cart::most' is 2 functions; name cart::cart::most<i32> or "
     "cart::cart::most<u8>"),
    ("p cart::cart::most::<u16>", "no such function 'cart::cart::most::<u16>'; name "
     "cart::cart::most<i32> or cart::cart::most<u8>"),
    ("p cart::cart::Cart::buy", "no such function 'cart::cart::Cart::buy'; did you mean "
     "<cart::cart::Cart as cart::cart::Shop>::buy"),
    ("p cart::cart::sell customer.name", "customer.name is a &str, which no NUL ends: "
     "'customer.name' at column 20 of 'p cart::cart::sell customer.name'; name its data_ptr or "
     "its length"),
    ("p cart::cart::sell customer.owned", "customer.owned is a structure: "),
    ("p cart::cart::sell customer.big", "customer.big has 16 bytes: "),
    ("p cart::cart::sell customer.pair.2", "customer.pair has no member '2': "),
    ("p cart::cart::sell customer.shape.Triangle", "customer.shape has no member 'Triangle': "),
    ("p cart::cart::sell customer.tags[0]", "customer.tags is no array and no slice: "),
    ("p cart::cart::sell sum", "sell has that variable, but not here: "),
    ("r cart::cart::sell qty", "parameters are not known at a return: "),
]  # fmt: skip


def test_what_is_said_of_errors(built: dict[tuple[str, tuple[str, ...]], Path]) -> None:
    program = built["0", ()]
    for probe, said in REFUSED:
        done = ftpatch("probe", program, probe, "--dry-run")
        assert done.code == 2 and done.err.count("\n") == 1, (probe, done.err)
        assert done.err.startswith(f"ftpatch: {program}: {said}"), (probe, done.err)
