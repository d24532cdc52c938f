# SPDX-License-Identifier: MIT
"""``within(FUNC)`` and ``first(N)``: the program itself counts the calls of the same kind."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.errors import Refused, UsageError
from ftpatch.probe import definition_text, parse_probe, parse_probes
from tests.support.command import child_env, ftpatch, ftpatch_command
from tests.support.probed_process import asked, compiled, hits
from tests.support.sampling import FUZZ, scaled

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
TRIPLES = {"x86_64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
ARCHES = pytest.mark.parametrize("arch", list(TRIPLES))
FORMS = pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("x86_64", ()),
        ("x86_64", ("-fno-omit-frame-pointer", "-fcf-protection=full")),
        ("arm64", ()),
        ("arm64", ("-fomit-frame-pointer",)),
        ("arm64", ("-mbranch-protection=standard",)),
    ],
)
WALKS = r"""
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#define APART __attribute__((noipa))
static _Thread_local const char *at;
static _Thread_local int in_f, in_h;
static _Thread_local jmp_buf *back;
static unsigned f_hits, h_hits, both, none, returns;
APART void g(void)
{
	f_hits += in_f > 0, h_hits += in_h > 0, both += in_f && in_h, none += !in_f && !in_h;
}
APART void mark(void) { __asm__ volatile(""); }
static void run(void);
APART void f(void) { in_f++; run(); in_f--; }
APART void h(void)
{
	char *room = alloca(100 + 16 * in_h);

	memset(room, in_h++, 50);
	run();
	__asm__ volatile("" : : "r"(room) : "memory");
	in_h--;
}
APART void plain(void) { volatile char room[300]; room[7] = 1; run(); room[8] = room[7]; }
static const char *closing(const char *from)
{
	for (int depth = 1; ; from++)
		if (!(depth += (*from == '(') - (*from == ')')))
			return from;
}
APART void jump(void)
{
	jmp_buf mine, *before = back;
	const char *end = closing(at);
	int f_before = in_f, h_before = in_h;

	back = &mine;
	if (!setjmp(mine)) {
		run();
	} else {
		in_f = f_before, in_h = h_before;
		mark();
	}
	at = end;
	back = before;
}
/* f( h( p( a call, until its parenthesis; g a hit; j( what x leaves at once. */
APART static void run(void)
{
	for (;;) {
		char what = *at++;
		void (*call)(void) = what == 'f' ? f : what == 'h' ? h : what == 'p' ? plain : jump;

		if (what == ')' || !what) {
			at--;
			return;
		} else if (what == 'g') {
			g();
		} else if (what == 'x') {
			if (back)
				longjmp(*back, 1);
		} else {
			at++;
			call();
			at++;
		}
	}
}
static void *walk(void *script)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

	at = script;
	pthread_mutex_lock(&one_at_a_time); /* they take turns, but not their frames */
	run();
	pthread_mutex_unlock(&one_at_a_time);
	return 0;
}
int main(int count, char **scripts)
{
	pthread_t threads[64];

	for (int i = 1; i < count; i++)
		pthread_create(&threads[i], 0, walk, scripts[i]);
	for (int i = 1; i < count; i++)
		pthread_join(threads[i], 0);
	printf("%u %u %u %u\n", f_hits, h_hits, both, none);
	return 0;
}
"""
TESTS = {
    "f_hits": "within(f)",
    "h_hits": "within(h) || within(h)",
    "both": "within(h) && within(f)",
    "none": "!within(f) && !within(h)",
}


def _script(rng: random.Random, depth: int, jumps: bool) -> str:
    parts = []
    for _ in range(rng.randrange(1, 6)):
        kind = rng.random()
        if depth and kind < 0.6:
            name = rng.choice("ffhhppj")
            parts.append(f"{name}({_script(rng, depth - 1, jumps or name == 'j')})")
        elif jumps and kind < 0.7:
            parts.append("x")
        else:
            parts.append("g")
    return "".join(parts)


def _counts(trace: Path) -> dict[str, int]:
    """How often each probe was hit, by the report's table."""
    report = ftpatch("report", trace)
    assert report.code == 0, report.err
    rows = (line.split() for line in report.out.splitlines() if line.startswith("# "))
    return {row[1]: int(row[3]) for row in rows if len(row) == 5 and row[3].isdigit()}


def _built(source: str, folder: Path, arch: str, *flags: str) -> Path:
    compiler = f"{TRIPLES[arch]}-{'g++' if '-xc++' in flags else 'gcc'}"
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    (folder / "walks.c").write_text(source)
    program = folder / "walks"
    words = [compiler, "-O2", "-static", "-pthread", *flags, str(folder / "walks.c")]
    subprocess.run([*words, "-o", str(program)], check=True)
    return program


def _run(
    program: Path, arch: str, probes: Sequence[str], *words: str, code: int = 0
) -> tuple[str, dict[str, int]]:
    """What the program printed, and how often each probe was hit."""
    emulator = [] if arch == "x86_64" else ["qemu-aarch64-static"]
    if emulator and shutil.which(emulator[0]) is None:
        pytest.skip(f"no {emulator[0]}")
    probed, trace = program.with_suffix(".p"), program.with_suffix(".trace")
    done = ftpatch("probe", program, *probes, "-o", probed, "--force")
    assert done.code == 0, done.err
    trace.unlink(missing_ok=True)
    said = subprocess.run(
        [*emulator, str(probed), *words],
        env={**os.environ, "FTPATCH_TRACE": str(trace)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == code, said
    return said.stdout, _counts(trace)


@FORMS
def test_random_calls_recursion_jumps_and_threads(
    arch: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    rng = random.Random(FUZZ)
    scripts = [_script(rng, 9, False) for _ in range(scaled(40, 12))]
    scripts += ["f(g)g", "j(p(h(gx)))gp(g)", "j(f(p(x)))p(p(gp(g)))", "h(j(f(x))g)g"]
    program = _built(WALKS, tmp_path, arch, *flags)
    probes = [f"p:{name} g if {test}" for name, test in TESTS.items()]
    probes += [f"r:r_{name} g if {test}" for name, test in TESTS.items()]
    said, found = _run(program, arch, [*probes, "r f", "r h", "r mark"], *scripts)
    wanted = dict(zip(TESTS, map(int, said.split()), strict=True))
    assert min(wanted.values()) > 0
    assert {name: found[name] for name in TESTS} == wanted
    assert {name: found[f"r_{name}"] for name in TESTS} == wanted


EDGES = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#define APART __attribute__((noipa))
static volatile int held;
APART int g(int phase) { held += phase; return phase; }
APART int tail(int phase) { held++; return g(phase); }       /* jumps there */
APART int f(int phase) { held++; int n = g(phase); held++; return n; }
APART int twice(int phase) { return phase > 10 ? twice(phase - 10) + g(phase - 10) : g(phase); }
static void handled(int number) { g(3 + 0 * number); }
APART int raising(void) { raise(SIGUSR1); return ++held; }
APART void forking(void)
{
	if (!fork()) {
		g(4);
		_exit(0);
	}
	wait(0);
	held++;
}
APART void wide(int phase)
{
	volatile char room[100000];

	room[phase] = room[99999] = 1;
	g(phase);
	held += room[phase];
}
int main(void)
{
	signal(SIGUSR1, handled);
	g(9);
	tail(1);
	f(2);
	raising();
	g(9);
	forking();
	twice(35);
	wide(6);
	g(9);
	printf("%d\n", held > 0);
	return 0;
}
"""


def _by_key(trace: Path) -> dict[str, dict[int, int]]:
    """The histograms of a trace: how often each key, by probe."""
    report = ftpatch("report", trace)
    assert report.code == 0, report.err
    out: dict[str, dict[int, int]] = {}
    name = ""
    for line in report.out.splitlines():
        words = line.split()
        if line.startswith("# event histogram: "):
            name = words[3]
        elif line.startswith("{"):
            out.setdefault(name, {})[int(words[2])] = int(words[5])
    return out


@FORMS
def test_tail_calls_signals_and_its_own_places(
    arch: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    program = _built(EDGES, tmp_path, arch, *flags)
    every = ("tail", "f", "twice", "raising", "forking", "wide")
    probes = [f"p:{name} g hist:keys=$arg1 if within({name})" for name in every]
    probes += [f"p:own_{name} {name} if within({name})" for name in every]
    probes += [f"r:back_{name} {name} if within({name})" for name in every]
    probes += [f"r:again_{name} {name} if within({name})" for name in every]
    probes += ["r:left_tail g hist:keys=$retval if within(tail)"]
    _, found = _run(program, arch, probes)
    trace = program.with_suffix(".trace")
    assert _by_key(trace) == {
        "tail": {1: 1},
        "left_tail": {1: 1},
        "f": {2: 1},
        "raising": {3: 1},
        "forking": {4: 1},  # in the child, which was forked within
        "twice": {5: 2, 15: 1, 25: 1},
        "wide": {6: 1},
    }
    recursions = {"own_twice": 3, "back_twice": 3, "again_twice": 3}
    kinds = ("own", "back", "again")
    wanted = {f"{kind}_{name}": 0 for kind in kinds for name in every} | recursions
    assert {name: found[name] for name in wanted} == wanted


THROWS = r"""
#include <cstdio>
#define APART __attribute__((noipa))
static volatile int held;
static unsigned inside, outside;
static int depth;
APART void g() { depth ? inside++ : outside++; }
APART void deep(int n)
{
	volatile char room[160];

	room[1] = n;
	n ? deep(n - 1) : g();
	held = room[1];
}
APART void f(int n)
{
	depth++;
	deep(3);
	if (!n)
		throw 7;
	if (n > 5)
		f(n - 5);
	else
		f(n - 1);
	depth--;
}
APART void settled() { held = held + 1; }
APART int caught(int n)
{
	try {
		f(n);
	} catch (int code) {
		depth = 0;
		settled();
		deep(8);
		g();
		return code;
	}
	return 0;
}
int main()
{
	for (int i = 0; i < 50; i++) {
		caught(i);
		deep(9);
	}
	std::printf("%u %u\n", inside, outside);
}
"""


@ARCHES
def test_exceptions_that_leave_it(arch: str, tmp_path: Path) -> None:
    program = _built(THROWS, tmp_path, arch, "-xc++")
    probes = ["p:in _Z1gv if within(f)", "p:out g() if !within(f(int))", "r f", "r settled"]
    said, found = _run(program, arch, probes)
    inside, outside = map(int, said.split())
    assert inside > 200
    assert (found["in"], found["out"]) == (inside, outside)


JUMPS = r"""
#include <setjmp.h>
#include <stdio.h>
#define APART __attribute__((noipa))
static volatile int held;
static jmp_buf back;
APART void g(int key) { held += key; }
APART void leaves(int key) { held++; g(key); longjmp(back, 1); }
APART void f(int key) { held++; leaves(key); held++; }
APART void other(int key) { held++; g(key); held++; }
APART void settled(void) { held++; }
APART void further(int key) { held++; f(key); held++; }
int main(void)
{
	for (volatile int i = 0; i < 10; i++) {
		if (!setjmp(back))
			further(1);
		g(6);
		settled();
		if (!setjmp(back))
			f(1);
		other(2);
		if (!setjmp(back))
			f(3);
		g(4);
		settled();
		other(5);
	}
	return 0;
}
"""


@ARCHES
def test_what_longjmp_leaves_for_another_call(arch: str, tmp_path: Path) -> None:
    """No probed function is called or returns where it was left: the call that follows takes its
    place on the stack."""
    program = _built(JUMPS, tmp_path, arch)
    _run(program, arch, ["p:in g hist:keys=$arg1 if within(f)", "r f"])
    assert _by_key(program.with_suffix(".trace")) == {"in": {1: 20, 3: 10}}


MANY = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noipa)) void g(int n) { __asm__ volatile("" : : "r"(n) : "memory"); }
static void *calls(void *unused) { for (int i = 0; i < 3000; i++) g(i); return unused; }
int main(int count, char **words)
{
	pthread_t all[8];

	if (count > 1 && fork() == 0) {
		for (int i = 0; i < 30; i++)
			g(i);
		_exit(0);
	}
	wait(0);
	for (int i = 0; i < 8; i++)
		pthread_create(&all[i], 0, calls, 0);
	for (int i = 0; i < 8; i++)
		pthread_join(all[i], 0);
	return 0 * !words;
}
"""


@ARCHES
def test_first_counts_exactly_with_many_threads(arch: str, tmp_path: Path) -> None:
    program = _built(MANY, tmp_path, arch)
    probes = ["p:some g n=$arg1:s32 if n >= 1000 && first(4321)"]
    probes += ["p:more g if first(24001)", "p:late g if first(25) && every(5)"]
    _, found = _run(program, arch, probes)
    assert found == {"some": 4321, "more": 8 * 3000, "late": 5}
    if arch == "x86_64":  # qemu-user does not wipe what a fork is told by
        _, found = _run(program, arch, probes, "fork")
        assert found == {"some": 4321, "more": 8 * 3000 + 30, "late": 2 * 5}


WITHIN_STRDUP = [
    "p:m libc.so.6:malloc n=$arg1:u64 if within(libc.so.6:strdup)",
    "r:d libc.so.6:strdup",
    "p:w libc.so.6:malloc n=$arg1:u64 if n > 1000000 && within(worker)",
    "r worker",
    "p:none libc.so.6:malloc if within(three)",
    "r three",
    "p:own three if within(main)",
    "r:* ma?n",
]


def _require_strdup(trace: Path, calls: int) -> None:
    found, values = hits(trace)
    assert found["m"] == found["w"] == calls
    assert {int(one["values"]["n"]) for one in values["m"]} == {17}
    assert not found["none"]


def test_a_library_of_a_running_process(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with asked(compiled(tmp_path)) as running:
        said = ftpatch("probe", *running.pid, *WITHIN_STRDUP, "-o", trace, "--keep")
        assert said.code == 0, said.err
        running.ask("c5")
        threads = int(running.ask("t5"))
        assert ftpatch("undo", *running.pid).code == 0
    _require_strdup(trace, threads)
    assert not hits(trace)[0]["own"]  # main() was entered before


def test_a_library_of_a_command(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    program = compiled(tmp_path)
    said = subprocess.run(
        ftpatch_command("probe", *WITHIN_STRDUP, "-o", trace, "-q", "-c", program),
        input="c5\nt5\n",
        env=child_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 7, said.stderr
    _require_strdup(trace, int(said.stdout.split()[2]))
    assert hits(trace)[0]["own"] == 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("within(f)", "within(f)"),
        ("within( f ) && n > 3", "within(f) && n > 3"),
        ("!within (0x10)||within(libc.so.6:open)", "!(within(0x10)) || within(libc.so.6:open)"),
        ("within(a::B::op(int, char*)) && first(3)", "within(a::B::op(int, char*)) && first(3)"),
        ("(within(a::operator()(int)))", "within(a::operator()(int))"),
        ("within(open@plt)", "within(open@plt)"),
        ("within(<a::B as C>::drop)", "within(<a::B as C>::drop)"),
        ("within > 3", "within > 3"),
    ],
)
def test_the_function_as_probes_name_it(text: str, told: str) -> None:
    found = parse_probe(f"p:a g n=$arg1:s32 within=$arg2:s32 if {text}", ["di"], arguments=6)
    assert definition_text(found).partition(" if ")[2] == told
    assert parse_probe(definition_text(found), ["di"], arguments=6) == found


@pytest.mark.parametrize(
    ("text", "clause", "at", "hint"),
    [
        ("within()", "no function in within()", "()", "as in within(main)"),
        ("n > 3 && within( )", "no function in within()", "( )", "as in within(main)"),
        ("within(f", "a parenthesis of within() is not closed", "(f", "add a `)`"),
        ("within(f(int) && n", "a parenthesis of within() is not closed", "(f(int) && n", "add a"),
        ("within(f))", "the filter goes on behind its end", ")", ""),
        ("within(f) n", "the filter goes on behind its end", "n", ""),
        ("within(f*)", "within() takes one function, not a wildcard", "f*", ""),
        ("within(f+4)", "within() takes a function, not a place in it", "f+4", "write f"),
        ("within(f%return)", "within() takes a function, not a place in it", "f%return", "write f"),
        ("within(a.c:12)", "within() takes a function, not a line", "a.c:12", ""),
        ("within(f, h)", "invalid probed address or symbol", "f, h", "use FUNC"),
        ("within(libc.so.6:)", "invalid probed address or symbol", "", "use FUNC"),
        ("within('f')", "invalid probed address or symbol", "'f'", "use FUNC"),
        ("within == 3", "the probe has no such value", "within", ""),
        ("within", "the probe has no such value", "within", ""),
    ],
)
def test_functions_that_mean_nothing(text: str, clause: str, at: str, hint: str) -> None:
    whole = f"p g n=$arg1:s32 if {text}"
    with pytest.raises(UsageError) as caught:
        parse_probe(whole, ["di"], arguments=6)
    said, place = str(caught.value), whole.rindex(at) if at else len(whole) - 1
    assert said.startswith(clause) and hint in said, said
    assert f"at column {place + 1} of" in said, said


WORDS = "within( ) ( :: , libc.so.6: && ! n > 3 +4 %return * < 0x10 f \u00e9 \0 '"
PIECES = st.sampled_from(WORDS.split(" "))


@given(st.lists(st.one_of(PIECES, st.just(" ")), max_size=16).map("".join))
def test_any_filter_means_something_or_is_refused(text: str) -> None:
    try:
        found = parse_probe(f"p g n=$arg1:s32 if within({text}", ["di"], arguments=6)
    except UsageError as error:
        assert "\n" not in str(error) and str(error).isprintable()
    else:
        assert parse_probe(definition_text(found), ["di"], arguments=6) == found


def test_a_kernel_has_none() -> None:
    refused = Refused()
    whole = "p:k do_exit code=$arg1 if code > 3 && within(do_group_exit)"
    assert parse_probes([whole], ["di"], refused, arguments=6, kernel=True) == ()
    (said,) = map(str, refused.errors)
    assert said.startswith("a kernel has no within(): 'within' at column 39 of")
    assert "set_graph_function" in said


@pytest.mark.parametrize(
    ("probes", "errors"),
    [
        (["p g if within(f)"], ["no r probe is on the function of within(): 'f' at column 15"]),
        (["p g if within(f)", "p f"], ["no r probe is on the function of within(): 'f'"]),
        (["p g if within(ff)", "r f"], ["no such function 'ff': 'ff' at column 15"]),
        (["p g if !within(0x10)", "r f"], ["no r probe is on the function of within(): '0x10'"]),
        (
            ["p g if within(libc.so.6:f)", "r f"],
            ["no r probe is on the function of within(): 'libc.so.6:f' at column 15"],
        ),
        (  # one that is refused itself
            ["p g if within(f)", "r:x f if within(nowhere)"],
            [
                "no such function 'nowhere': 'nowhere' at column 17",
                "no r probe is on the function of within(): 'f' at column 15",
            ],
        ),
        (["p g if within(f)", "r f a=@nowhere"], ["@nowhere: no such symbol", "no r probe is on"]),
        (["p:* t* if within(f)", "r g"], ["no r probe is on the function of within(): 'f'"]),
    ],
)
def test_without_a_probe_of_its_returns(
    probes: list[str], errors: list[str], tmp_path: Path
) -> None:
    program, target = _built(EDGES, tmp_path, "x86_64"), tmp_path / "walks.p"
    done = ftpatch("probe", program, *probes, "-o", target)
    lines = [line for line in done.err.splitlines() if "walks: " in line]
    assert done.code == 2 and len(lines) == len(errors), done.err
    for line, error in zip(sorted(lines), sorted(errors), strict=True):
        assert error in line and str(program) in line, done.err
    assert not target.exists()
    kept = ftpatch("probe", program, *probes, "p:left main", "-o", target, "--keep-going")
    assert kept.code == 1 and "left" in kept.out, kept.err
    text = ftpatch("probe", target).out
    assert "within" not in text and "left main" in text


def test_what_is_listed_and_undone(tmp_path: Path) -> None:
    program, target = _built(EDGES, tmp_path, "x86_64"), tmp_path / "walks.p"
    probes = ["p:in g n=$arg1:s32 if n > 1 && !within(f)", "r:* t*e"]
    assert ftpatch("probe", program, *probes, "-o", target).code == 2
    probes += ["r:f f"]
    assert ftpatch("probe", program, *probes, "-o", target).code == 0
    assert "p:probes/in g n=$arg1:s32 if n > 1 && !(within(f))" in ftpatch("probe", target).out
    assert ftpatch("undo", target, "--in-place", "--force").code == 0
    assert target.read_bytes() == program.read_bytes()
