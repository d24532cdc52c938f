# SPDX-License-Identifier: MIT
"""Floats and doubles in vector registers: gdb prints the same, and so does the program itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import ftpatch
from tests.support.tracer_programs import run

SOURCE = r"""
#include <stdio.h>
#define NOINLINE __attribute__((noinline, noipa))
struct pair { double a, b; };
struct mix { long n; double d; };
struct small { float a, b; };
NOINLINE double area(int n, double width, float height, long k)
{
	printf("area %d %a %a %ld\n", n, width, height, k);
	return n * width * height + k;
}
NOINLINE float half(float x)
{
	printf("half %a\n", x);
	return x / 2;
}
NOINLINE double many(double a, double b, double c, double d, double e, double f, double g, float h,
			double i, float j)
{
	printf("many %a %a %a %a %a\n", a, g, h, i, j);
	return a + b + c + d + e + f + g + h + i * j;
}
NOINLINE double sum(struct pair p, struct mix m, struct small s)
{
	printf("sum %a %a %ld %a\n", p.a, p.b, m.n, m.d);
	return p.a + p.b + m.n + m.d + s.a + s.b;
}
NOINLINE struct pair both(double a) { return (struct pair){a, -a}; }
NOINLINE struct mix mixed(double a) { return (struct mix){a, a / 3}; }
NOINLINE long double wide(long double l, double d) { return l + d; }
NOINLINE struct small smaller(float a) { return (struct small){a, -a}; }

static volatile double sink;
int main(void)
{
	for (int i = 1; i < 4; i++) {
		struct pair got = both(i / 7.0);
		struct mix other = mixed(10 * i);

		printf("area= %a\n", area(i, 1.5 * i, 0.1f, -i));
		printf("half= %a\n", half(i));
		printf("many= %a\n", many(i, 2, 3, 4, 5, 6, 7, 8.25f, 1e300, 1e-30f));
		printf("sum= %a\n", sum(got, other, (struct small){1, 2}));
		printf("both= %a %a\n", got.a, got.b);
		printf("mixed= %ld %a\n", other.n, other.d);
		printf("wide %a\n", 2.0 * i);
		sink = wide(i, 2.0 * i) + smaller(i).b;
	}
	return 0;
}
"""
PROBES = {
    "area": "n width height k",
    "half": "x",
    "many": "a g h i j",
    "sum": "p.a p.b m.n m.d",
    "wide": "d",
}
RETURNS = {
    "area": "$retval",
    "half": "$retval",
    "many": "$retval",
    "sum": "$retval",
    "both": "$retval.a $retval.b",
    "mixed": "$retval.n $retval.d",
}
COMPILERS = {
    "x86_64": ("gcc", "clang"),
    "arm64": ("aarch64-linux-gnu-gcc", "clang --target=aarch64-linux-gnu"),
}
CASES = [
    (arch, compiler, level, way)
    for arch, compilers in COMPILERS.items()
    for compiler in compilers
    for level in ("-O0", "-O2")
    for way in ("jump", "trap")
]


def _built(folder: Path, *words: str, text: str = SOURCE, name: str = "area.c") -> Path:
    (folder / name).write_text(text)
    program = folder / "area"
    subprocess.run([*words, name, "-o", program], check=True, cwd=folder)
    return program


def _require(arch: str, compiler: str) -> None:
    emulated = arch != os.uname().machine
    tools = [compiler.split()[0], *["qemu-aarch64-static"] * emulated]
    if missing := [one for one in tools if shutil.which(one) is None]:
        pytest.skip(f"no {missing[0]}")


def _recorded(
    program: Path, *probes: str, arch: str, way: str = "jump"
) -> tuple[str, list[tuple[str, list[object]]]]:
    """What the program prints, and the values of each hit, by its probe's name."""
    out, trace = program.with_name("out"), program.with_name("trace")
    words = ["--no-optimize"] if way == "trap" else []
    done = ftpatch("probe", program, *probes, *words, "-o", out, "--force")
    assert done.code == 0, done.err
    assert way != "trap" or done.out.count(" trap ") == len(probes), done.out
    trace.unlink(missing_ok=True)
    said = run(out, cwd=program.parent, arch=arch, env={"FTPATCH_TRACE": str(trace)})
    rows = [row for row in ftpatch("report", trace, "--json").json if "time" in row]
    return said.out.decode(), [(str(row["probe"]), list(row["values"].values())) for row in rows]


def _told(values: list[object]) -> list[float]:
    return [float(str(value)) for value in values]


@pytest.mark.parametrize(("arch", "compiler", "level", "way"), CASES)
def test_the_program_prints_the_same(
    arch: str, compiler: str, level: str, way: str, tmp_path: Path
) -> None:
    _require(arch, compiler)
    program = _built(tmp_path, *compiler.split(), "-g", level)
    probes = [f"p:{name} {name} {fetches}" for name, fetches in PROBES.items()]
    probes += [f"r:{name}_ {name} {fetches}" for name, fetches in RETURNS.items()]
    said, hits = _recorded(program, *probes, arch=arch, way=way)
    mine: dict[str, list[list[float]]] = {}
    for name, values in hits:
        mine.setdefault(name.replace("_", "="), []).append(_told(values))
    theirs: dict[str, list[list[float]]] = {}
    for line in said.splitlines():
        name, *words = line.split()
        printed = [float.fromhex(word) if "x" in word else float(word) for word in words]
        theirs.setdefault(name, []).append(printed)
    assert set(mine) == set(theirs) == {*PROBES, *(f"{name}=" for name in RETURNS)}
    for name, rows in theirs.items():
        assert len(mine[name]) == len(rows) == 3
        for one, other in zip(mine[name], rows, strict=True):
            # A float is told by the shortest decimal of a float, and printed as a double.
            pairs = zip(one, other, strict=True)
            assert all(a == b or float(np.float32(a)) == b for a, b in pairs), (name, one, other)


def _gdb(program: Path, *commands: str) -> list[str]:
    words = [word for command in commands for word in ("-ex", command)]
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", *words, program], capture_output=True, text=True, timeout=120
    )
    return re.findall(r"\$\d+ = (.*)", done.stdout)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="gdb runs programs of this machine")
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_gdb_prints_the_same(level: str, tmp_path: Path) -> None:
    program = _built(tmp_path, "gcc", "-g", level)
    star = "*" if level == "-O2" else ""  # without optimisation, gdb knows them behind the prologue
    for name, fetches in (("area", "width height k"), ("many", "a b c d e f g h i j")):
        prints = [f"print {fetch}" for fetch in fetches.split()]
        theirs = _gdb(program, f"break {star}{name}", "run", *prints, "continue", *prints)
        _, hits = _recorded(program, f"p:e {name} {fetches}", arch="x86_64")
        mine = [value for _, values in hits[:2] for value in _told(values)]
        assert len(theirs) == len(mine) == 2 * len(prints)
        pairs = zip(mine, map(float, theirs), strict=True)
        assert not [one for one in pairs if one[0] != one[1] and np.float32(one[0]) != one[1]]
        # What it returns, and in which register.
        theirs = _gdb(program, f"break {star}{name}", "run", "finish", "print $xmm0.v2_double[0]")
        _, hits = _recorded(program, f"r:e {name} $retval $retval:f64 %xmm0:f64", arch="x86_64")
        assert len(theirs) == 2 and _told(hits[0][1]) == [float(theirs[0])] * 3
        assert float(theirs[1]) == float(theirs[0])


@pytest.mark.parametrize(("arch", "way"), [(a, w) for a in COMPILERS for w in ("jump", "trap")])
def test_every_register_by_name(arch: str, way: str, tmp_path: Path) -> None:
    """Without debug information; the probe leaves all of them as they were."""
    compiler = COMPILERS[arch][0]
    _require(arch, compiler)
    count, name, load, place = {
        "x86_64": (16, "xmm", "movsd {at}(%rdi), %xmm{n}", "nopl 0(%rax, %rax)"),
        "arm64": (32, "v", "ldr d{n}, [x0, #{at}]", "nop"),
    }[arch]
    store = {"x86_64": "movsd %xmm{n}, {at}(%rsi)", "arm64": "str d{n}, [x1, #{at}]"}[arch]
    loads = "".join(f"\t{load.format(n=n, at=8 * n)}\n" for n in range(count))
    stores = "".join(f"\t{store.format(n=n, at=8 * n)}\n" for n in range(count))
    saved = "".join(f"\tstr d{n}, [sp, #{8 * n - 64}]\n" for n in range(8, 16))
    kept = saved.replace("str", "ldr")
    before, after = ("\tsub sp, sp, #64\n" + saved, kept + "\tadd sp, sp, #64\n")
    if arch == "x86_64":
        before = after = ""
    (tmp_path / "pass.S").write_text(
        ".text\n.globl through, there\n.type through, %function\n.type there, %function\n"
        f"through:\n{before}{loads}there:\n\t{place}\n{stores}{after}\tret\n"
        ".size there, . - there\n.size through, . - through\n"
        '.section .note.GNU-stack, "", %progbits\n'
    )
    text = r"""
#include <stdio.h>
void through(const double *from, double *to);
int main(void)
{
	double from[32], to[32];

	for (int i = 0; i < 32; i++)
		from[i] = 1e10 / (i + 3);
	through(from, to);
	for (int i = 0; i < COUNT; i++)
		printf("%a\n", to[i]);
	return 0;
}
"""
    program = _built(
        tmp_path, compiler, f"-DCOUNT={count}", "-no-pie", "pass.S", text=text, name="main.c"
    )
    doubles, singles = (
        f"p:{kind} there " + " ".join(f"r{n}=%{name}{n}:{kind}" for n in range(count))
        for kind in ("f64", "f32")
    )
    said, hits = _recorded(program, doubles, singles, arch=arch, way=way)
    theirs = [float.fromhex(word) for word in said.split()]
    assert [name for name, _ in hits] == ["f64", "f32"]
    assert len(set(theirs)) == count and _told(hits[0][1]) == theirs
    low = np.array(theirs).view(np.float32)[::2]
    assert _told(hits[1][1]) == [float(str(one)) for one in low]


def test_what_is_said_of_errors(tmp_path: Path) -> None:
    program = _built(tmp_path, "gcc", "-g", "-O2")
    for probe, said in (
        ("p wide l", "l is a long double: 'l' at column 8 of 'p wide l'; probes read float and "
         "double"),
        ("r wide $retval", "$retval is a long double: '$retval' at column 8 of 'r wide $retval'; "
         "probes read float and double"),
        ("p area width:f32", "it has 8 bytes: 'f32' at column 14 of 'p area width:f32'; write f64, "
         "or leave out the type"),
        ("p area $arg2:f64", "$arg2 is an integer register: 'f64' at column 14 of 'p area "
         "$arg2:f64'; write %xmm0:f64 for the first float"),
        ("p area %xmm16", "invalid register name: '%xmm16' at column 8 of 'p area %xmm16'; did you "
         "mean %xmm6 or %xmm1 or %xmm15?"),
        ("r smaller $retval.b", "$retval.b is a part of a register, which cannot be fetched: "
         "'$retval.b' at column 11 of 'r smaller $retval.b'"),
        ("p area width if width > 1.5f", "invalid number: '1.5f' at column 25 of"),
    ):  # fmt: skip
        done = ftpatch("probe", program, probe, "--dry-run")
        assert done.code == 2 and f"{said}" in done.err and done.err.count("\n") == 1, done.err
    for probe in ("p area %xmm0", "p area +0(%xmm0)"):
        done = ftpatch("probe", program, probe, "--print-events")
        said = "a kernel's code has no floats: '%xmm0' at column "
        assert done.code == 2 and said in done.err, done.err


def test_a_result_is_a_float_where_debug_information_says_so(tmp_path: Path) -> None:
    """Without it, and for anything else, $retval is what it has always been."""
    program = _built(tmp_path, "gcc", "-g", "-O2")
    plain = tmp_path / "plain"
    subprocess.run(["strip", "-g", program, "-o", plain], check=True)
    probe = "r:a area x=$retval if $retval < 0.0"
    _, hits = _recorded(program, probe, arch="x86_64")
    assert [float(str(values[0])) < 0 for _, values in hits] == [True] * 3
    done = ftpatch("probe", plain, probe, "--dry-run")
    assert done.code == 2 and "an integer is compared with integers" in done.err
    assert ftpatch("probe", plain, "r area $retval $retval:f64", "--dry-run").code == 0
    for at in (program, plain):
        out = at.with_name("typed")
        typed = "r:a area $retval:x64 $retval:f64"
        assert ftpatch("probe", at, typed, "r:m main $retval", "-o", out, "--force").code == 0
        said = ftpatch("probe", out).out
        assert "area arg1=$retval arg2=$retval:f64" in said and "main arg1=$retval\n" in said


@pytest.mark.parametrize("arch", ["x86_64", "arm64"])
def test_the_runtime_leaves_vector_registers_alone(arch: str) -> None:
    """Whatever runs between a place and its fetches: only these read them."""
    tool, pattern, form, count = {
        "x86_64": ("objdump", r"%[xyz]?mm\d|%st\b", r"movq +%xmm(\d+),%r\w+", 16),
        "arm64": ("aarch64-linux-gnu-objdump", r"[\s,{][bhsdqv]\d+\b", r"fmov\tx\d+, d(\d+)", 32),
    }[arch]
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    stub = Path(__file__).parents[2] / "stubs" / "built" / arch / "probes.elf"
    words = [tool, "-d", "--no-show-raw-insn", "--no-addresses", str(stub)]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    code = [line.strip() for line in text.splitlines() if line.startswith("\t")]
    using = [line for line in code if re.search(pattern, line)]
    found = [re.fullmatch(form, line) for line in using]
    assert len(code) > 1000 and all(found), using
    assert sorted(int(one[1]) for one in found if one) == list(range(count))


LOOP = r"""
#include <stdio.h>
__attribute__((noinline)) double total(const double *all, int n, float rate)
{
	double sum = 0, high = all[0];
	for (int i = 0; i < n; i++) {
		double one = all[i] * rate;
		sum += one;
		high = one > high ? one : high;
	}
	return sum + high;
}
int main(void)
{
	double all[] = {0.1, 1e10, -3, 2.5, 7e-5};
	printf("%g\n", total(all, 5, 0.75f));
	return 0;
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="gdb runs programs of this machine")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_locals_are_where_gdb_finds_them(compiler: str, tmp_path: Path) -> None:
    """At each line, in whatever register they are there."""
    program = _built(tmp_path, compiler, "-g", "-O2", "-no-pie", text=LOOP)
    compared = 0
    for line in range(5, 12):
        for name in ("sum", "high", "one", "rate"):
            probe = f"p:e area.c:{line} {name}"
            done = ftpatch("probe", program, probe, "--dry-run", "--json")
            if done.code:  # it is not known there, or in two registers, or the line has no code
                continue
            address = done.json[0]["address"]
            _, hits = _recorded(program, probe, arch="x86_64")
            commands = [f"break *{address}", "run", f"print {name}"]
            theirs = _gdb(program, *commands, *["continue", f"print {name}"] * (len(hits) - 1))
            mine = [value for _, values in hits for value in _told(values)]
            assert len(theirs) == len(mine), (line, name)
            for one, other in zip(mine, theirs, strict=True):
                known = other != "<optimized out>"
                assert not known or float(np.float32(one)) == float(np.float32(float(other)))
                compared += known
    assert compared > 10


RUST = r"""
#[inline(never)] fn area(n: i32, width: f64, height: f32, k: &f64) -> f64 {
    println!("area {n} {width:?} {height:?}");
    n as f64 * width * height as f64 + *k
}
#[inline(never)] fn half(x: f32) -> f32 { println!("half {x:?}"); x / 2.0 }
fn main() {
    for i in 1..4 {
        println!("area= {:?}", area(i, 1.5 * i as f64, 0.1 * i as f32, &(i as f64)));
        println!("half= {:?}", half(i as f32 / 7.0));
    }
}
"""


@pytest.mark.skipif(shutil.which("rustc") is None, reason="rustc is not installed")
@pytest.mark.parametrize("level", ["0", "2"])
def test_rust_prints_the_same(level: str, tmp_path: Path) -> None:
    """Without optimisation, only the prologue tells where parameters are."""
    words = ("rustc", "-g", "-C", f"opt-level={level}")
    program = _built(tmp_path, *words, text=RUST, name="area.rs")
    probes = ["p:area area::area n width height", "r:area_ area::area $retval"]
    probes += ["p:half area::half x", "r:half_ area::half $retval"]
    said, hits = _recorded(program, *probes, arch="x86_64")
    mine = [(name.replace("_", "="), _told(values)) for name, values in hits]
    theirs = [(name, [*map(float, words)]) for name, *words in map(str.split, said.splitlines())]
    assert len(mine) == 12 and mine == theirs
