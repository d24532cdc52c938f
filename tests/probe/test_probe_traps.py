# SPDX-License-Identifier: MIT
"""Breakpoints of ours beside the program's own use of SIGTRAP, and beside a debugger's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.tracer_programs import Form, build, run

FORMS = [
    Form(site="none"),
    Form(link="static", level="-O0", site="none"),
    Form(link="no-pie", site="none", more=("-fno-plt",)),
    Form(link="static-pie", site="none"),
    Form("arm64", site="none"),
    Form("arm64", "static", "-O0", "none"),
    Form("loongarch64", site="none"),
    Form("loongarch64", "static", "-O0", "none"),
]
PROBES = ("p:before work n=$arg1:s64", "r:after work $retval:s64")
CALLS = 10
PLUGIN = """
#include <signal.h>
long plugged(void)
{
	register long size __asm__("r10") = 8;
	long ret = 14; /* rt_sigprocmask */
	sigset_t now;

	__asm__ volatile("syscall" : "+a"(ret) : "D"(0), "S"(0), "d"(&now), "r"(size)
				: "rcx", "r11", "memory");
	return ret;
}
"""
PLUGGING = """
#include <dlfcn.h>
#include <stdio.h>
__attribute__((noinline)) long work(long n) { __asm__ volatile(""); return n * 3 + 1; }
static int maps(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	int c, lines = 0;

	while ((c = getc(file)) != EOF)
		lines += c == 10;
	fclose(file);
	return lines;
}
int main(int argc, char **argv)
{
	int i, before = 0;

	for (i = 0; i < 100; i++) {
		void *plugin = dlopen(argv[1], RTLD_NOW);

		if (((long (*)(void))dlsym(plugin, "plugged"))())
			return 99;
		work(i);
		dlclose(plugin);
		if (i == 10)
			before = maps();
	}
	return maps() - before;
}
"""


def _probed(program: Path, *more: str) -> Path:
    out = program.with_name("probed")
    done = ftpatch("probe", program, *PROBES, *more, "--no-optimize", "-o", out, "--force")
    assert done.code == 0, done.err
    return out


def _hits(trace: Path) -> dict[str, int]:
    rows = ftpatch("report", trace, "--json").json
    assert not any(row["missed"] for row in rows if "missed" in row)
    return {row["probe"]: row["hits"] for row in rows if "hits" in row}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_program_has_its_own(form: Form, tmp_path: Path) -> None:
    program = build(form, "traps.c", tmp_path)
    patched = _probed(program)
    trace = tmp_path / "trace"
    for args in ([], ["trap"], ["die"]):
        expected = run(program, args, cwd=tmp_path, arch=form.arch)
        assert b".c:" not in expected.out, str(expected)
        environment = {"FTPATCH_TRACE": str(trace)}
        got = run(patched, args, cwd=tmp_path, arch=form.arch, env=environment)
        assert (got.out, got.status) == (expected.out, expected.status), str(got)
        assert _hits(trace) == {"before": CALLS, "after": CALLS}
        trace.unlink()


@pytest.mark.parametrize("link", [[], ["-static", "-nostdlib", "-DSTATIC"]], ids=["", "static"])
@pytest.mark.parametrize("way", ["--optimize", "--no-optimize"])
def test_pages_may_be_guarded(way: str, link: list[str], tmp_path: Path) -> None:
    """arm64 with BTI: the kernel and calls by a register come only to landing pads."""
    if shutil.which("qemu-aarch64-static") is None:
        pytest.skip("no qemu-aarch64-static")
    program, out, trace = tmp_path / "guarded", tmp_path / "out", tmp_path / "trace"
    source = Path(__file__).parent.parent / "programs" / "guarded_signals.c"
    flags = ["-O1", "-fno-builtin", "-mbranch-protection=standard", "-nostartfiles"]
    built = [*flags, "-Wl,-z,force-bti", *link, str(source), "-o", str(program)]
    subprocess.run(["aarch64-linux-gnu-gcc", *built], check=True)
    done = ftpatch("probe", program, "p work", "r:late leaf", "p leaf+0", way, "-o", out)
    assert done.code == 0 and "trap" in done.out, done.err
    expected = run(program, [], cwd=tmp_path, arch="arm64")
    got = run(out, [], cwd=tmp_path, arch="arm64", env={"FTPATCH_TRACE": str(trace)})
    assert expected.status == 25
    assert (got.status, got.out) == (expected.status, expected.out), str(got)
    assert _hits(trace) == {"p_work_0": 1, "late": 2, "p_leaf_0": 2}


def test_debuggers_have_theirs(tmp_path: Path) -> None:
    """On the probed function itself, and behind the call of it."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    source = tmp_path / "two.c"
    source.write_text(
        "__attribute__((noinline)) long work(long n) { return n * 3 + 1; }\n"
        "__attribute__((noinline)) long more(long n) { return work(n) + 1; }\n"
        "int main(void) { return (int)(more(1) + more(2) + more(3)) & 1; }\n"
    )
    program = tmp_path / "two"
    flags = ["-O1", "-fno-optimize-sibling-calls", "-fno-ipa-ra"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(program)], check=True)
    patched = _probed(program)
    script = [
        "set pagination off",
        "handle SIGILL nostop noprint pass",
        "break more",
        "commands",
        "silent",
        "continue",
        "end",
        "run",
        "info breakpoints",
    ]
    (tmp_path / "script").write_text("\n".join(script) + "\n")
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(tmp_path / "script"), str(patched)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={"PATH": "/usr/bin:/bin", "FTPATCH_TRACE": "trace", "DEBUGINFOD_URLS": ""},
    )
    assert re.search(r"breakpoint already hit 3 times", done.stdout), done.stdout + done.stderr
    assert "exited" in done.stdout, done.stdout
    assert _hits(tmp_path / "trace") == {"before": 3, "after": 3}


def test_libraries_that_come_and_go(tmp_path: Path) -> None:
    """What leads their system calls goes with them: a process has 65,530 mappings."""
    (tmp_path / "plugin.c").write_text(PLUGIN)
    (tmp_path / "main.c").write_text(PLUGGING)
    program, plugin = tmp_path / "main", tmp_path / "plugin.so"
    shared = ["gcc", "-O2", "-shared", "-fPIC", str(tmp_path / "plugin.c"), "-o", str(plugin)]
    subprocess.run(shared, check=True)
    subprocess.run(["gcc", "-O2", str(tmp_path / "main.c"), "-o", str(program)], check=True)
    patched = _probed(program)
    done = run(patched, [str(plugin)], cwd=tmp_path, env={"FTPATCH_TRACE": str(tmp_path / "trace")})
    assert (done.status, _hits(tmp_path / "trace")) == (0, {"before": 100, "after": 100})


PENDING = """
#include <signal.h>
#include <unistd.h>
__attribute__((noinline)) long work(long n) { __asm__ volatile(""); return n * 3 + 1; }
int main(void)
{
	sigset_t set, now;

	sigemptyset(&set);
	sigaddset(&set, SIGILL);
	sigprocmask(SIG_BLOCK, &set, 0);
	work(1);
	if (sigpending(&now) || sigismember(&now, SIGILL))
		return 1;
	kill(getpid(), SIGILL);
	work(2);
	return sigpending(&now) || !sigismember(&now, SIGILL) ? 2 : 0;
}
"""


@pytest.mark.parametrize("link", [[], ["-static"]], ids=["", "static"])
def test_a_signal_that_waits_is_pending(link: list[str], tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(PENDING)
    program = tmp_path / "main"
    flags = ["gcc", "-O2", *link, str(tmp_path / "main.c"), "-o", str(program)]
    subprocess.run(flags, check=True)
    patched = _probed(program)
    done = run(patched, [], cwd=tmp_path, env={"FTPATCH_TRACE": str(tmp_path / "trace")})
    assert (done.status, _hits(tmp_path / "trace")) == (0, {"before": 2, "after": 2})
