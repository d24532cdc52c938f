# SPDX-License-Identifier: MIT
"""What a user's stub is told of a call besides registers: by nm, by the program's own clock, and by
how many calls there are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch import arch_named
from ftpatch.layout import constants, structure
from tests.support.command import ROOT, ftpatch
from tests.support.tracer_programs import ARCHES, REGISTERED, SOURCES, emulator, traced
from tests.support.user_stubs import (
    CALLER,
    HEAD,
    PROGRAM,
    RETURN,
    SAYS,
    compiled_program,
    compiled_stub,
    functions_of,
    outcome,
    told_words,
)

every_arch = pytest.mark.parametrize("arch", REGISTERED)
DEEP = r"""
#include <pthread.h>
#include <stdio.h>
__attribute__((noipa)) int down(int n) { return n ? down(n - 1) + 1 : 0; }
__attribute__((noipa)) void last(int n) { }
static void *run(void *n) { down((int)(long)n); last((int)(long)n); return 0; }
int main(void)
{
	pthread_t one, two;

	pthread_create(&one, 0, run, (void *)50l);
	pthread_join(one, 0);
	pthread_create(&two, 0, run, (void *)80l);
	pthread_join(two, 0);
	run((void *)10l);
	return 0;
}
"""


@every_arch
def test_overruns_are_each_threads(arch: str, tmp_path: Path) -> None:
    """Calls that found the ret_stack full, of each thread its own; and as many in all as
    function_graph counts."""
    text = f"""{SAYS}{CALLER}{{ (void)call; (void)regs; }}
{RETURN}{{
	unsigned long long all[] = {{call->func, call->overrun, call->depth, call->tid}};
	(void)regs;
	words(all, 4);
}}"""
    program = compiled_program(arch, tmp_path, "-pthread", "-fno-optimize-sibling-calls", text=DEEP)
    options = ("-f", "down", "-f", "last", "--max-stack", "16")
    own = traced(program, str(compiled_stub(arch, HEAD + text, tmp_path)), *options)
    got = np.array(told_words(own, arch, tmp_path)).reshape(-1, 4)
    last = got[got[:, 0] == functions_of(program)["last"]]
    assert last[:, 1].tolist() == [51 - 16, 81 - 16, 0] and not last[:, 2].any()
    assert len(set(last[:, 3].tolist())) == 3
    down = got[got[:, 0] == functions_of(program)["down"]]
    assert down[:, 2].tolist() == [*range(15, -1, -1), *range(15, -1, -1), *range(10, -1, -1)]
    graph = traced(program, "function_graph", *options)
    subprocess.run(
        [*emulator(arch), graph],
        env={**os.environ, "FTPATCH_TRACE": str(tmp_path / "graph"), "FTPATCH_TRACE_SIZE": "1M"},
        check=True,
    )
    header = np.frombuffer(
        (tmp_path / "graph").read_bytes(),
        arch_named(arch).order.record(structure("trace_header")),
        1,
    )[0]
    assert header["lost"][constants["LOST_DEPTH"]] == 35 + 65


@every_arch
def test_the_sample_says_each_call_and_return(arch: str, tmp_path: Path) -> None:
    text = """
__attribute__((noipa)) int down(int n) { return n ? down(n - 1) + 1 : 0; }
int main(void) { return down(9); }
"""
    stub = compiled_stub(arch, ROOT / "samples" / "stubs" / "calls.c", tmp_path, name="calls")
    program = compiled_program(arch, tmp_path, text=text)
    code, said = outcome(traced(program, str(stub), "-f", "down"), arch)
    lines = [line.split() for line in said.splitlines()]
    assert code == 9 and "".join(line[0] for line in lines) == ">" * 10 + "<" * 10
    start = functions_of(program)["down"]
    assert all(start < int(ip, 16) < start + 64 for _, ip, _ in lines)
    back = [parent for _, _, parent in lines]
    assert back[:10] == back[:9:-1] and len(set(back)) == 2


INTERRUPTED = r"""
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noipa)) void inside(void) { }
__attribute__((noipa)) void once(void) { }
__attribute__((noipa)) void last(void) { }
static void handler(int number) { inside(); inside(); }
int main(void) { signal(SIGUSR1, handler); once(); last(); return 0; }
"""


def test_calls_within_the_stub_are_counted(tmp_path: Path) -> None:
    """A signal that the stub raises: what its handler calls is missed, not told."""
    text = f"""{SAYS}{CALLER}{{
	unsigned long long all[] = {{call->func, call->missed}};
	static int sent;
	long ret;

	(void)regs;
	words(all, 2);
	if (!sent++)
		__asm__ volatile("syscall; mov $10, %%esi; mov %%eax, %%edi; mov $62, %%eax; syscall"
			: "=a"(ret) : "a"(39) : "rcx", "r11", "rdi", "rsi", "memory");
}}"""
    program = compiled_program("x86_64", tmp_path, text=INTERRUPTED)
    names = ("inside", "once", "last")
    own = traced(
        program,
        str(compiled_stub("x86_64", HEAD + text, tmp_path)),
        *(word for name in names for word in ("-f", name)),
    )
    places = functions_of(program)
    wanted = [places["once"], 0, places["last"], 2]
    assert told_words(own, "x86_64", tmp_path) == wanted


def test_tail_calls_return_to_their_callers_caller(tmp_path: Path) -> None:
    """Whose address is told, and not that of return_to_handler."""
    text = f"""{SAYS}
static void tell(struct fgraph_call *call)
{{
	unsigned long long all[] = {{call->func, call->parent}};
	words(all, 2);
}}
{CALLER}{{ (void)regs; tell(call); }}
{RETURN}{{ (void)regs; tell(call); }}"""
    source = r"""
    __attribute__((noipa)) int third(int n) { return n + 1; }
    __attribute__((noipa)) int second(int n) { return third(n + 1); }
    __attribute__((noipa)) int first(int n) { return second(n + 1); }
    int main(void) { return first(1) - 4; }
    """
    for arch in REGISTERED:
        program = compiled_program(arch, tmp_path, "-O2", text=source)
        names = ("first", "second", "third")
        chosen = [word for name in names for word in ("-f", name)]
        own = traced(program, str(compiled_stub(arch, HEAD + text, tmp_path)), *chosen)
        got = np.array(told_words(own, arch, tmp_path)).reshape(-1, 2)
        places = functions_of(program)
        order = ("first", "second", "third", "third", "second", "first")
        assert got[:, 0].tolist() == [places[name] for name in order]
        (parent,) = set(got[:, 1].tolist())
        assert places["main"] < parent < places["main"] + 100


FORMS_OF_SITES = {
    "pad": ("x86_64", ["-fpatchable-function-entry=5", "-fcf-protection=none"]),
    "endbr": ("x86_64", ["-fpatchable-function-entry=5", "-fcf-protection=full"]),
    "longer": ("x86_64", ["-fpatchable-function-entry=16,8"]),
    "fentry": ("x86_64", ["-pg", "-mfentry", "-mrecord-mcount", "-no-pie", "-fno-pie"]),
    "fentry-got": ("x86_64", ["-pg", "-mfentry", "-mrecord-mcount", "-fPIE", "-fcf-protection"]),
    "i386": ("i386", ["-fpatchable-function-entry=5", "-fcf-protection=full"]),
    "a32": ("arm", ["-marm", "-fpatchable-function-entry=2"]),
    "t32": ("arm", ["-mthumb", "-fpatchable-function-entry=3"]),
    "arm64": ("arm64", ["-fpatchable-function-entry=2"]),
    "riscv64": ("riscv64", ["-fpatchable-function-entry=4"]),
    "loongarch64": ("loongarch64", ["-fpatchable-function-entry=2"]),
    "s390x": ("s390x", ["-fpatchable-function-entry=3"]),
    "ppc64le": ("ppc64le", ["-fpatchable-function-entry=2", *ARCHES["ppc64le"].flags]),
    "ppc64le-large": (
        "ppc64le",
        [ARCHES["ppc64le"].pad, *ARCHES["ppc64le"].flags, "-mcmodel=large"],
    ),
    "bti": ("arm64", ["-fpatchable-function-entry=2", "-mbranch-protection=standard"]),
}


@pytest.mark.parametrize("form", FORMS_OF_SITES)
def test_functions_and_sites(form: str, tmp_path: Path) -> None:
    """Addresses are those of nm and of ``ftpatch list``, whatever stands before a site."""
    arch, flags = FORMS_OF_SITES[form]
    if shutil.which(ARCHES[arch].gcc) is None:
        pytest.skip(f"no {ARCHES[arch].gcc}")
    source, program = tmp_path / "prog.c", tmp_path / "prog"
    source.write_text(PROGRAM)
    link = ["-static"] if "got" not in form else []
    own_fentry = [str(SOURCES / "fentry.S")] if "fentry" in form else []
    words = [ARCHES[arch].gcc, "-O1", "-w", *flags, *link, str(source), *own_fentry]
    subprocess.run([*words, "-o", program], check=True)
    text = f"""{SAYS}{CALLER}{{
	unsigned long long all[] = {{call->func, call->ip}};
	(void)regs;
	words(all, 2);
}}"""
    own = traced(program, str(compiled_stub(arch, HEAD + text, tmp_path)))
    got = np.array(told_words(own, arch, tmp_path), np.uint64).reshape(-1, 2)
    places = functions_of(program)
    sites = {one["symbol"]: int(one["ip"], 16) for one in ftpatch("list", "--json", program).json}
    names = ("main", "many", "both", "all", "half", "less", "fib")
    bias = got[0, 0] - np.uint64(places["main"])
    wanted = {(places[name], sites[name]) for name in names}
    assert {(int(f - bias), int(ip - bias)) for f, ip in got} == wanted


CLOCK = r"""
#include <stdio.h>
#include <time.h>
static long long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec; }
__attribute__((noipa)) void waits(void) { nanosleep(&(struct timespec){0, 80000000}, 0); }
int main(void)
{
	long long before = now();
	waits();
	printf("%lld %lld\n", before, now());
	return 0;
}
"""


@every_arch
def test_times_are_nanoseconds(arch: str, tmp_path: Path) -> None:
    """Between those that the program takes itself, but for the clock's thousandth."""
    text = f"""{SAYS}{CALLER}{{ (void)call; (void)regs; }}
{RETURN}{{
	unsigned long long all[] = {{call->calltime, call->rettime}};
	(void)regs;
	words(all, 2);
}}"""
    program = compiled_program(arch, tmp_path, text=CLOCK)
    own = traced(program, str(compiled_stub(arch, HEAD + text, tmp_path)), "-f", "waits")
    out = tmp_path / "words"
    command = ["sh", "-c", 'exec 9>"$0" "$@"', str(out), *emulator(arch), str(own)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    before, after = map(int, done.stdout.split())
    calltime, rettime = arch_named(arch).order.unsigned(out.read_bytes(), 8).tolist()
    near = 1_000_000
    assert before - near < calltime and rettime < after + near
    assert rettime - calltime > 79_900_000


def test_unwinders_find_the_way_through(tmp_path: Path) -> None:
    """From a signal in the stub to main, by libgcc."""
    source = r"""
    #include <execinfo.h>
    #include <signal.h>
    #include <stdio.h>
    static void handler(int number)
    {
        void *at[40];
        int n = backtrace(at, 40);
        backtrace_symbols_fd(at, n, 1);
        (void)number;
    }
    __attribute__((noipa)) int inner(int n) { return n + 1; }
    __attribute__((noipa)) int outer(int n) { return inner(n) + 1; }
    int main(void)
    {
        void *at[2];
        backtrace(at, 2);
        signal(SIGUSR1, handler);
        return outer(1) - 3;
    }
    """
    kill = """static long call_(long n, long a, long b)
{
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "a"(n), "D"(a), "S"(b) : "rcx", "r11", "memory");
	return ret;
}
"""
    body = "{ (void)call; (void)regs; call_(62, call_(39, 0, 0), 10); }\n"
    stub = compiled_stub("x86_64", HEAD + kill + CALLER + body + RETURN + body, tmp_path)
    flags = ("-rdynamic", "-fno-optimize-sibling-calls")
    program = compiled_program("x86_64", tmp_path, *flags, text=source, link="pie")
    code, out = outcome(traced(program, str(stub), "-f", "inner"), "x86_64")
    assert code == 0
    names = re.findall(r"\((inner|outer|main)\+", out)
    assert names == ["inner", "outer", "main", "outer", "main"]
