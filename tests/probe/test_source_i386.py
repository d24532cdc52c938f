# SPDX-License-Identifier: MIT
"""Names of the source on i386: gdb prints the same of what is on the stack, in pairs of registers
and on the x87's own stack, also of functions that are not called as the psABI says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.probe import test_source_plus as plus
from tests.probe.test_source_values import GONE, _gdb, _named
from tests.support.command import ftpatch
from tests.support.tracer_programs import ARCHES, Form, libraries, run

GCC, GXX = ARCHES["i386"].gcc, ARCHES["i386"].gxx
pytestmark = pytest.mark.skipif(
    any(shutil.which(one) is None for one in (GCC, "gdb")), reason=f"needs {GCC} and gdb"
)

SOURCE = r"""
#include <stdbool.h>
#include <stdio.h>
#define NOINLINE __attribute__((noinline, noipa))
enum color { RED, GREEN = 5, BLUE = -3 };
struct item { int sku; double price; short n; long long when; };
struct big { int a; char tag[8]; double d; long long l; };
static volatile int sink;
NOINLINE double half(double of, float by) { return of / by; }
NOINLINE float third(float of) { return of / 3; }
NOINLINE long long wide(int a, long long b, unsigned long long c, double d, char e)
{
	long long sum = a + b * 3;
	unsigned long long other = c ^ sum;
	sink = e;
	for (int i = 0; i < a; i++) {
		sum += other >> i;
		other = other * 5 + (int)d; /* LOOP */
		sink += sum;
	}
	return sum + other;
}
NOINLINE struct big made(int first, struct big in, struct item *item)
{
	in.a += first;
	in.l -= item->when;
	return in;
}
NOINLINE __attribute__((fastcall)) int fast(int a, int b, int c) { sink = a; return a * 100 + b * 10 + c; }
NOINLINE __attribute__((regparm(3))) int three(int a, short b, char c, long long d) { sink = a; return a - b * c + d; }
NOINLINE __attribute__((regparm(3))) long long only(long long d) { sink = d; return d * 3; }
NOINLINE __attribute__((stdcall)) int pops(unsigned char a, long long b) { sink = a; return a + b; }
static __attribute__((noinline)) int local(int a, unsigned char b, const char *c) { sink = a + b + *c; return a * b + c[1]; }
NOINLINE enum color paint(enum color c, bool yes) { return yes ? c : RED; }
NOINLINE unsigned long long far(int n) { return 0x123456789abcdefull * n; }
NOINLINE double added(const double *from, int n)
{
	double total = 1, most = 0;
	for (int i = 0; i < n; i++) {
		total += from[i];
		most = from[i] > most ? from[i] : most; /* ADD */
		sink += i;
	}
	return total * most;
}
int main(void)
{
	struct item item = {7, 1.25, -3, 1ll << 40};
	struct big big = {1, "seven", 2.5, -5};
	double total = 1, list[3] = {.1, 4.5, 1e300};
	for (int i = 1; i < 4; i++) {
		struct big got = made(i, big, &item);
		total += half(i + .5, 4) + third(i) + got.d; /* MAIN */
		printf("%lld %d %lld\n", wide(i, -i * 0x100000001ll, ~0ull >> i, i * 1.5, 'a' + i), got.a, got.l);
		printf("%d %d %lld ", fast(i, -i, 9), three(i, 2 - i, 'c', -1ll << 33), only(i * -0x123456789ll));
		printf("%d %d %d ", pops(250 + i, 1ll << 33), local(i, 250 + i, "hello" + i), paint(BLUE, i & 1));
		printf("%llx %g %g\n", far(i), total, added(list, i));
	}
	return 0;
}
"""  # noqa: E501
TAKES = {
    "half": ("of", "by"),
    "third": ("of",),
    "wide": ("a", "b", "c", "d", "e"),
    "made": ("first", "in.a", "in.tag", "in.d", "in.l", "item->price", "item->n", "item->when"),
    "fast": ("a", "b", "c"),
    "three": ("a", "b", "c", "d"),
    "only": ("d",),
    "pops": ("a", "b"),
    "local": ("a", "b", "c"),
    "paint": ("c", "yes"),
    "added": ("n", "*from"),
}
GIVES = {
    "half": ("$retval",),
    "third": ("$retval",),
    "wide": ("$retval",),
    "made": ("$retval.a", "$retval.tag", "$retval.d", "$retval.l"),
    "only": ("$retval",),
    "far": ("$retval",),
    "added": ("$retval",),
}
LINES = {
    "LOOP": ("sum", "other", "i", "a", "b", "c", "d"),
    "ADD": ("total", "most", "i", "n", "from[0]"),
    "MAIN": ("i", "total", "item.when", "big.tag", "got.a", "list[1]"),
}
SINGLE = {"third.of", "half.by", "third.$retval"}
"""Of type float: gdb writes nine digits."""
FORMS = [
    ("gcc", "pie", "-O0"),
    ("gcc", "pie", "-O2"),
    ("gcc", "no-pie", "-O0 -gdwarf-4"),
    ("gcc", "no-pie", "-O2 -fno-omit-frame-pointer"),
    ("gcc", "static", "-O1 -fomit-frame-pointer"),
    ("gcc", "static-pie", "-O0"),
    ("gcc", "pie", "-Os -msse2 -mfpmath=sse"),
    ("gcc", "pie", "-O2 -mregparm=3"),
    ("clang", "no-pie", "-O0"),
    ("clang", "no-pie", "-O2"),
]
FLAGS = {"pie": ["-pie", "-fPIE"], "no-pie": ["-no-pie", "-fno-pie"], "static": ["-static"]}
FLAGS["static-pie"] = ["-static-pie", "-fPIE"]


def _built(folder: Path, compiler: str, link: str, level: str, text: str = SOURCE) -> Path:
    words = [GCC]
    if compiler != "gcc":
        words = ["clang", "--target=i686-linux-gnu"]
        if shutil.which("clang") is None:
            pytest.skip("no clang")
    (folder / "cart.c").write_text(text)
    words += ["-g", "-w", *level.split(), *FLAGS[link], "cart.c", "-o", "cart"]
    words += libraries(Form("i386", link), plus=False)
    subprocess.run(words, check=True, cwd=folder)
    return folder / "cart"


def _recorded(program: Path, *probes: str) -> list[dict[str, str]]:
    """The values of each hit; the program does what it did."""
    out, trace = program.with_name("out"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", out, "--force")
    assert done.code == 0, done.err
    trace.unlink(missing_ok=True)
    got = run(out, cwd=program.parent, arch="i386", env={"FTPATCH_TRACE": str(trace)})
    expected = run(program, cwd=program.parent, arch="i386")
    assert (got.out, got.status) == (expected.out, expected.status), str(got)
    rows = ftpatch("report", trace, "--json").json
    return [
        {name: str(one) for name, one in row["values"].items()} for row in rows if "time" in row
    ]


def _kept(program: Path, kind: str, place: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that can be fetched: others are refused for what the compiler did."""
    probes = [f"{kind}:n{number} {place} {name}" for number, name in enumerate(names)]
    done = ftpatch("probe", program, *probes, "--dry-run", "--keep-going", "--json")
    kept = tuple(names[int(str(row["name"])[1:])] for row in done.json)
    refused = done.err.splitlines()
    assert len(kept) + len(refused) == len(names), done.err
    reasons = ["optimised away", "not yet stored there", "is computed there", "split up there"]
    reasons += ["has no known place at the entry", "part of a register", "is not kept up to there"]
    assert all(any(reason in line for reason in reasons) for line in refused), done.err
    return kept


def _differ(name: str, mine: str, theirs: str) -> bool:
    try:
        a, b = float(mine), float(theirs)
    except ValueError:
        return mine != theirs
    return np.float32(a) != np.float32(b) if name in SINGLE else a != b


def _compare(
    where: str, names: tuple[str, ...], mine: list[str], theirs: list[str]
) -> list[object]:
    pairs = zip(names * (len(mine) // len(names)), mine, theirs, strict=True)
    return [
        (where, name, one, two)
        for name, one, two in pairs
        if two not in GONE and _differ(f"{where}.{name}", one, two)
    ]


@pytest.mark.parametrize("form", FORMS, ids=["-".join(form).replace(" ", "") for form in FORMS])
def test_as_gdb_prints_them(form: tuple[str, str, str], tmp_path: Path) -> None:
    program = _built(tmp_path, *form)
    # Without optimisation, and for what clang counts from a frame that is not laid yet, gdb is
    # right behind the prologue only; what is in registers may be overwritten there.
    star = "*" * (form[0] == "gcc" and "-O0" not in form[2])
    differ, gone, compared = list[object](), 0, 0
    for function, names in TAKES.items():
        kept = _kept(program, "p", function, names)
        assert form[0] == "clang" or kept == names or "-O2" in form[2], (function, kept)
        if not kept:
            continue
        rows = _recorded(program, f"p:a {function} {_named(kept)}")
        mine = [value for row in rows for value in row.values()]
        prints = [f"print {name}" for name in kept]
        theirs = _gdb(
            program, f"break {star}{function}", "run", *prints, *(["continue", *prints] * 2)
        )
        differ += _compare(function, kept, mine, theirs)
        gone += sum(one in GONE for one in theirs)
        compared += len(theirs)
    assert not differ
    assert compared - gone >= (70 if form[0] == "gcc" else 50), (compared, gone)


@pytest.mark.parametrize("form", FORMS, ids=["-".join(form).replace(" ", "") for form in FORMS])
def test_results(form: tuple[str, str, str], tmp_path: Path) -> None:
    program = _built(tmp_path, *form)
    differ = list[object]()
    for function, names in GIVES.items():
        (row, *more) = _recorded(program, f"r:a {function} {_named(names)}")
        commands = [f"print {name.replace('$retval', '$1')}" for name in names]
        theirs = _gdb(program, f"break {function}", "run", "finish", *commands)
        differ += _compare(function, names, [*row.values()], theirs)
        assert len(more) == 2
    assert not differ


@pytest.mark.parametrize("form", FORMS, ids=["-".join(form).replace(" ", "") for form in FORMS])
def test_lines(form: tuple[str, str, str], tmp_path: Path) -> None:
    """Locals on the stack, in registers and in pairs of them; main aligns its frame, and tells by
    an expression where it is."""
    program = _built(tmp_path, *form)
    differ, known = list[object](), 0
    for mark, names in LINES.items():
        line = next(n for n, text in enumerate(SOURCE.split("\n"), 1) if f"/* {mark} */" in text)
        place = f"cart.c:{line}"
        found = ftpatch("probe", program, f"p:a {place}", "--dry-run", "--json")
        if found.code and "has code in" in found.err:  # where it was unrolled
            place = re.findall(r"use one of ([^,\s]+)", found.err)[0]
            found = ftpatch("probe", program, f"p:a {place}", "--dry-run", "--json")
        at = str(found.json[0]["definition"]).split()[1]
        kept = _kept(program, "p", place, names)
        if not kept:
            continue
        mine = _recorded(program, f"p:a {place} {_named(kept)}")[0]
        prints = [f"print {name}" for name in kept]
        theirs = _gdb(program, f"break *({at})", "run", *prints)
        differ += _compare(mark, kept, [*mine.values()], theirs)
        known += len(kept)
    assert not differ
    assert known >= (18 if "-O0" in form[2] else 8)


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_plus(level: str, tmp_path: Path) -> None:
    """Objects, references, classes that are passed by their address, std::string."""
    if shutil.which(GXX) is None:
        pytest.skip(f"no {GXX}")
    words = [GXX, level, *plus.FLAGS["g++"], *libraries(Form("i386", "no-pie"), plus=True)]
    program = plus._built(tmp_path, *words)
    names = tuple(one for one in (*plus.ADD, *plus.BASES) if one != "n")
    kept = tuple(plus._kept(program, "shop::Cart::add", names))
    assert len(kept) >= len(names) - 2 * (level == "-O2"), set(names) - set(kept)
    prints = [f"print {plus.BASE.sub('shop::', one)}" for one in kept]
    star = "*" * (level == "-O2")
    rows = _recorded(program, f"p:a shop::Cart::add {_named(kept)}")
    mine = [value for row in rows for value in row.values()]
    theirs = _gdb(
        program, f"break {star}shop::Cart::add", "run", *prints, *(["continue", *prints] * 2)
    )
    assert not _compare("add", kept, mine, [plus._theirs(one) for one in theirs])
    assert sum(one in GONE for one in theirs) < 9


X87 = r"""
#include <stdio.h>
#include <string.h>
#define NOINLINE __attribute__((noinline, noipa))
static const unsigned long long fractions[] = {
	0x8000000000000000, 0xc90fdaa22168c235, 0xffffffffffffffff, 0x8000000000000400,
	0x8000000000000c00, 0x8000000000000401, 0xfffffffffffffbff, 0xfffffffffffffc00,
	0x8000008000000000, 0x8000018000000000, 0xffffff7fffffffff, 0xffffff8000000000, 0,
};
static const unsigned short exponents[] = {
	0x3fff, 0xbfff, 0x43fe, 0x43ff, 0x3c01, 0x3c00, 0x3bcd, 0x3bcc, 0x3bcb, 0x3f81, 0x3f80, 0x3f6a,
	0x3f69, 0x3f68, 0x407e, 0xc07e, 0x407f, 0x7ffe, 1, 0x7fff, 0xffff, 0,
};
#define COUNT(list) (int)(sizeof(list) / sizeof(list[0]))
struct __attribute__((packed)) extended { unsigned long long fraction; unsigned short exponent; };
struct extended held;
/* What it returns has more digits than a double. */
double given(void);
asm("given: fldt held\n\tret\n\t.type given, @function\n\t.size given, . - given");
unsigned char image[108];
/* Another rounding, exceptions that are noted, and five numbers. */
void deep(void);
asm("deep: fninit\n\tfldcw word\n\tfldz\n\tfld1\n\tfdiv %st(1)\n\tfldpi\n\tfldl2e\n\tfldln2\n\t"
    "nop\n\tnop\n\tnop\n\tnop\n\tnop\n\tfnsave image\n\tfninit\n\tret\n\t"
    ".type deep, @function\n\t.size deep, . - deep\n\t.data\nword: .word 0x0c7f\n\t.text");
int main(void)
{
	for (int one = 0; one < COUNT(exponents); one++)
		for (int two = 0; two < COUNT(fractions); two++) {
			if (!fractions[two] != !exponents[one] && (exponents[one] & 0x7fff) != 0x7fff)
				continue; /* no number of today's processors */
			if (!fractions[two] && exponents[one])
				continue;
			held = (struct extended){fractions[two], exponents[one]};
			double is;
			float narrow;
			asm volatile("fldt held\n\tfstl %0\n\tfstps %1" : "=m"(is), "=m"(narrow));
			given();
			asm volatile("fstp %%st(0)" ::: "st");
			printf("%.17g %.9g\n", is, narrow);
		}
	deep();
	for (int i = 0; i < 108; i++)
		printf("%s%02x", i % 4 ? "" : " ", i >= 12 && i < 28 ? 0 : image[i]);
	return 0;
}
"""


def _is_nearest(mine: str, theirs: str, kind: str) -> bool:
    a, b = np.array([float(mine), float(theirs)]).astype(kind)
    return bool(a == b or (np.isnan(a) and np.isnan(b)))


def test_numbers_of_the_x87(tmp_path: Path) -> None:
    """As its instructions round them; and whatever is on its stack stays there."""
    program = _built(tmp_path, "gcc", "no-pie", "-O1", X87)
    told = subprocess.run(
        ["objdump", "-d", "--disassemble=deep", program], capture_output=True, text=True, check=True
    ).stdout
    places = [int(at, 16) for at in re.findall(r"^\s*([0-9a-f]+):.*\tnop", told, re.MULTILINE)]
    offset = places[0] - int(re.findall(r"([0-9a-f]+) <deep>:", told)[0], 16)
    stack = " ".join(f"s{n}=%st{n}:f64" for n in range(4))
    rows = _recorded(
        program, "r:back given wide=$retval:f64 narrow=$retval:f32", f"p:deep deep+{offset} {stack}"
    )
    printed = run(program, cwd=tmp_path, arch="i386").out.decode().splitlines()[:-1]
    assert len(rows) == len(printed) + 1 > 200
    wrong = [
        (row, text)
        for row, text in zip(rows, printed, strict=False)
        if not all(map(_is_nearest, row.values(), text.split(), ("f8", "f4")))
    ]
    assert not wrong
    assert [float(one) for one in rows[-1].values()][:3] == [np.log(2), np.log2(np.e), np.pi]


def test_pairs(tmp_path: Path) -> None:
    """Registers side by side, as a value of 64 bits: `%edx:%eax`."""
    program = _built(tmp_path, "gcc", "pie", "-O2")
    both = "h=%edx:u32 l=%eax:u32 v=%edx:%eax:u64 s=%edx:%eax:s64"
    rows = _recorded(program, f"r:far far {both}", "r:wide wide v=%edx:%eax $retval:u64 if v != 0")
    for row in rows:
        if "h" in row:
            whole = int(row["h"]) << 32 | int(row["l"])
            assert int(row["v"]) == whole == int(row["s"]) % (1 << 64) > 1 << 32
        else:
            assert int(row["v"], 16) == int(row["arg2"])
    assert len(rows) == 6


REFUSED = [
    ("p far %edx:%ip", "%edx:%ip is no value in two registers; fetch each one by itself"),
    ("p far %edx:%rax", "invalid register name: '%rax' at column 12 of 'p far %edx:%rax'; "),
    ("p far %eax:f64", "%eax has 4 bytes; take s32 or u32"),
    (
        "p far %st9:f64",
        "invalid register name: '%st9' at column 7 of 'p far %st9:f64'; did you mean ",
    ),
    ("p far m", "far has no such parameter: 'm' at column 7 of 'p far m'; it has n"),
]


@pytest.mark.parametrize(("probe", "said"), REFUSED, ids=[one for one, _ in REFUSED])
def test_what_is_refused(probe: str, said: str, tmp_path: Path) -> None:
    program, out = _built(tmp_path, "gcc", "pie", "-O2"), tmp_path / "out"
    done = ftpatch("probe", program, probe, "-o", out)
    assert done.code == 2 and not out.exists()
    assert said in done.err and done.err.count("\n") == 1, done.err
