# SPDX-License-Identifier: MIT
"""Lines of the source: where they are, what can be named there, and what is said of errors."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.probe.test_source_values import (
    COMPILERS,
    GONE,
    SOURCE,
    _built,
    _gdb,
    _named,
    _recorded,
)
from tests.support.command import ftpatch
from tests.support.cross_root import CROSS, use_cross_root
from tests.support.tracer_programs import ARCHES

INSIDE = next(n for n, text in enumerate(SOURCE.split("\n"), 1) if "sum += items" in text)
BEHIND = next(n for n, text in enumerate(SOURCE.split("\n"), 1) if "stock -= qty" in text)
LOCALS = ("sum", "qty", "customer->name", "items[1].sku")


@pytest.mark.parametrize(("compiler", "level", "dwarf"), COMPILERS)
def test_locals_as_gdb_prints_them(compiler: str, level: str, dwarf: int, tmp_path: Path) -> None:
    program = _built(tmp_path, compiler, level, f"-gdwarf-{dwarf}")
    line = BEHIND if level == "-O2" else INSIDE
    names = LOCALS if level == "-O2" else (*LOCALS, "i", "items[i].sku"[:5] + "[2].n")
    probes = [f"p:n{number} cart.c:{line} {name}" for number, name in enumerate(names)]
    done = ftpatch("probe", program, *probes, "--dry-run", "--keep-going", "--json")
    kept = [names[int(str(row["name"])[1:])] for row in done.json]
    assert len(kept) >= len(names) - 2 * (level == "-O2"), done.err
    address = done.json[0]["address"]
    rows = _recorded(program, f"p:a cart.c:{line} {_named(tuple(kept))}")
    mine = [str(value) for value in rows[0]["values"].values()]  # type: ignore[attr-defined]
    symbol = str(done.json[0]["definition"]).split()[1]
    expected = _gdb(program, f"break *({symbol})", "run", *(f"print {name}" for name in kept))
    assert int(str(address), 16) and len(mine) == len(expected)
    pairs = zip(kept, mine, expected, strict=True)
    assert not [pair for pair in pairs if pair[1] != pair[2] and pair[2] not in GONE]
    assert sum(one in GONE for one in expected) < 2


def test_lines_as_the_line_table_has_them(tmp_path: Path) -> None:
    program = _built(tmp_path, "gcc", "-O0", "-g")
    told = ftpatch("probe", program, "--lines", "sell").out.splitlines()
    numbers = {int(text[:6]) for text in told[1:] if text[:6].strip()}
    table = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", "maint info line-table cart.c", str(program)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    theirs = {
        int(row.split()[1])
        for row in table.splitlines()
        if row[:1].isdigit() and row.split()[1].isdigit()
    }
    assert numbers and numbers <= theirs
    assert numbers == {n for n in theirs if min(numbers) <= n <= max(numbers)}
    assert f"{INSIDE:>6}  " + SOURCE.split("\n")[INSIDE - 1] in told


def test_split_debug_information(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the link and by build-id; not that of another build."""
    program = _built(tmp_path, "gcc", "-O2", "-g", "-Wl,--build-id")
    debug, plain = tmp_path / "cart.debug", tmp_path / "plain"
    for words in (
        ["--only-keep-debug", program, debug],
        ["--strip-debug", f"--add-gnu-debuglink={debug}", program, plain],
    ):
        subprocess.run(["objcopy", *map(str, words)], check=True)
    asked = ("probe", plain, "p sell customer->name", "--dry-run")
    assert ftpatch(*asked).code == 0
    cache = tmp_path / "cache"
    notes = subprocess.run(["readelf", "-n", plain], capture_output=True, text=True, check=True)
    identity = notes.stdout.split("Build ID: ")[1].split()[0]
    (cache / identity).mkdir(parents=True)
    debug.rename(cache / identity / "debuginfo")
    assert "no debug information" in ftpatch(*asked).err
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(cache))
    assert ftpatch(*asked).code == 0
    other = _built(tmp_path, "gcc", "-O1", "-g", "-Wl,--build-id")
    subprocess.run(["objcopy", "--only-keep-debug", other, debug], check=True)
    monkeypatch.delenv("DEBUGINFOD_CACHE_PATH")
    assert "no debug information" in ftpatch(*asked).err


REFUSED = [
    ("p sell customer->nme", "customer has no member 'nme': '->nme' at column 16 of 'p sell "
     "customer->nme'; did you mean name?"),
    ("p sell custmer", "sell has no such parameter: 'custmer' at column 8 of 'p sell custmer'; "
     "did you mean customer?"),
    ("p sell customer.name", "customer is a pointer: '.name' at column 16 of 'p sell "
     "customer.name'; write customer->name"),
    ("p sell *customer", "*customer is a structure: '*customer' at column 8 of 'p sell "
     "*customer'; name a member: name, tag, color, vip, next, best, low, inner, ..."),
    ("p sell qty->x", "qty is no pointer: '->x' at column 11 of 'p sell qty->x'; write qty.x"),
    ("p sell items[0].price:f32", "it has 8 bytes: 'f32' at column 23 of 'p sell "
     "items[0].price:f32'; write f64, or leave out the type"),
    ("p sell items[0].price if items[0].price & 2", "floats have no bits to test: '&' at column 41 "
     "of "),
    ("p sell qty:u64", "it has 4 bytes: 'u64' at column 12 of 'p sell qty:u64'; at most x32"),
    ("p sell sum", "sell has that variable, but not here: 'sum' at column 8 of 'p sell sum'; "
     "probe a line where it is, as in FILE:LINE"),
    ("r sell qty", "parameters are not known at a return: 'qty' at column 8 of 'r sell qty'; "
     "use a p probe"),
    ("p sell customer->tag[8]", "customer->tag has 8 elements: '[8]' at column 21 of 'p sell "
     "customer->tag[8]'; they count from 0"),
    ("p crt.c:9", "no code of a file crt.c: 'crt.c:9' at column 3 of 'p crt.c:9'; "
     "did you mean cart.c?"),
    ("p cart.c:9999", "cart.c:9999 has no code: 'cart.c:9999' at column 3 of 'p cart.c:9999'; "
     "the nearest is cart.c:"),
    ("r cart.c:40", "a function returns, not a line: 'cart.c:40' at column 3 of 'r cart.c:40'; "
     "use p, or r FUNC"),
    ("p sell qty if customr->name == \"x\"", "sell has no such parameter: 'customr' at column 15 "),
]  # fmt: skip


def test_what_is_said_of_errors(tmp_path: Path) -> None:
    program = _built(tmp_path, "gcc", "-O0", "-g")
    for probe, said in REFUSED:
        done = ftpatch("probe", program, probe, "--dry-run")
        assert (done.code == 2 and done.err.startswith(f"ftpatch: {program}: {said}")) or (
            done.err.startswith(f"ftpatch: {said}")
        ), (probe, done.err)
    plain = _built(tmp_path, "gcc", "-O0")
    assert "no debug information; compile it with -g" in ftpatch("probe", plain, "p sell qty").err


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("arch", ["arm", "arm64", "loongarch64", "ppc64le", "riscv64", "s390x"])
def test_other_architectures(arch: str, level: str, tmp_path: Path) -> None:
    if arch in CROSS:
        use_cross_root(arch)
    program = _built(tmp_path, ARCHES[arch].gcc, level, "-g", "-static")
    names = ("customer->name", "customer->vip", "qty", "items[2].sku", "c", "a5", "a6", "a7", "a8")
    # On s390x the last member of a structure is at the right end of its register.
    part, held = ("pair.high", -41) if arch == "s390x" else ("pair.low", 40)
    more = ("d", "u", "f", "port", part, "yes", "color", "**pp", "wide.third")
    paired = "r:c paired $retval.low"
    probes = [f"p:a sell {_named(names)}", f"p:m mixed {_named(more)}", "r:b parse $retval->best.n"]
    if arch in ("arm", "s390x"):  # its result is in memory
        said = ftpatch("probe", program, paired, "--dry-run").err
        assert "$retval is where only the caller knows" in said
    else:
        probes.append(paired)
    rows = _recorded(program, *probes, arch=arch)
    values = [list(row["values"].values()) for row in rows]  # type: ignore[attr-defined]
    assert values[0] == ["alice", "false", 3, 3, ord("x"), 5, 6, -7, -8]
    assert values[1] == ["bob", "true", 2, 3, ord("y"), 15, 16, 17, 18]
    assert values[2] == [1.5, 200, 2.5, 60000, held, "true", "BLUE", 4, 3]
    assert values[3:] == [[-9], [6]][: len(probes) - 2]
    if arch == "s390x":
        said = ftpatch("probe", program, "p mixed pair.low", "--dry-run").err
        assert "is a part of a register, which cannot be fetched" in said


def test_debug_information_that_lies(tmp_path: Path) -> None:
    """Bytes changed at random: a value, or one line, in a while."""
    program = _built(tmp_path, "gcc", "-O2", "-g")
    whole = program.read_bytes()
    sections = subprocess.run(
        ["readelf", "-SW", program], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.replace("[ ", "[").split() for line in sections.splitlines() if ".debug_" in line]
    spans = [(int(row[4], 16), int(row[5], 16)) for row in rows]
    seed = int(os.environ.get("FTPATCH_SEED", "1"))
    chance, broken = random.Random(seed), tmp_path / "broken"
    for _ in range(12):
        held = bytearray(whole)
        for _ in range(chance.choice([1, 8, 64])):
            start, size = chance.choice(spans)
            held[start + chance.randrange(size)] = chance.randrange(256)
        broken.write_bytes(held)
        broken.chmod(0o755)
        done = ftpatch(
            "probe", broken, "p sell customer->name items[1].n", "p:b cart.c:45 sum", "--dry-run"
        )
        assert done.code in (0, 2) and "Traceback" not in done.err, (seed, done.err)
