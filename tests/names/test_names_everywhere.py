# SPDX-License-Identifier: MIT
"""One way of naming: what each verb takes for the functions of a program of C++."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_process
from tests.support.images import fentry_kernel

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("g++") is None, reason="needs g++ on x86-64"
)
PROGRAM = r"""
extern "C" void ftrace_caller();
namespace shop {
struct Cart {
    int total = 0;
    __attribute__((noinline)) int add(int n) { asm volatile(""); return total += n; }
    __attribute__((noinline)) int add(int n, int m) { asm volatile(""); return total += n * m; }
};
template <class T> __attribute__((noinline)) T most(T a, T b)
{
    asm volatile("");
    return a > b ? a : b;
}
__attribute__((noinline)) void hook(int) { asm volatile(""); }
__attribute__((noinline)) void hook() { asm volatile(""); }
__attribute__((noinline)) void other() { asm volatile(""); }
}
__attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main()
{
    shop::Cart cart;
    shop::hook();
    shop::hook(1);
    shop::other();
    return cart.add(1) + cart.add(2, 3) + shop::most(1, 2) + fib(2) - 11;
}
"""
ADD, ADD2, MOST = "_ZN4shop4Cart3addEi", "_ZN4shop4Cart3addEii", "_ZN4shop4mostIiEET_S1_S1_"


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cart") / "cart"
    source = path.with_suffix(".cc")
    source.write_text(PROGRAM)
    words = ["g++", "-O1", "-fpatchable-function-entry=5", str(source), "-o", str(path)]
    subprocess.run(words, check=True)
    return path


SPELLINGS = [
    ("shop::Cart::*", {ADD, ADD2}),
    ("shop::Cart::add", {ADD, ADD2}),
    ("shop::Cart::add(int, int)", {ADD2}),
    ("shop::Cart::add(int,int)", {ADD2}),
    (ADD, {ADD}),
    ("_ZN4shop4Cart*", {ADD, ADD2}),
    ("*most<int>", {MOST}),
    ("fib", {"_Z3fibi"}),
]


@pytest.fixture(scope="module")
def trace(cart: Path) -> Path:
    """A recording of all of it."""
    kept = cart.with_name("kept")
    assert ftpatch_process("trace", "-o", kept, cart).code == 0
    return kept


@pytest.mark.parametrize(("text", "symbols"), SPELLINGS)
def test_all_verbs_take_the_same_names(
    text: str, symbols: set[str], cart: Path, trace: Path, tmp_path: Path
) -> None:
    listed = ftpatch("list", cart, "-f", text, "--json")
    assert {row["symbol"] for row in listed.json} == symbols, "JSON has the symbol table's"
    everything = {row["symbol"] for row in ftpatch("list", cart, "--json").json}
    without = ftpatch("list", cart, "-n", text, "--json").json
    assert {row["symbol"] for row in without} == everything - symbols
    names = tmp_path / "names"
    names.write_text(
        "\n".join([text, "main", "shop::other", "shop::hook()", "_ZN4shop4hookEi", ""])
    )
    more = {row["symbol"] for row in ftpatch("list", cart, "-f", f"@{names}", "--json").json}
    hooks = {"main", "_ZN4shop5otherEv", "_ZN4shop4hookEv", "_ZN4shop4hookEi"}
    assert more == symbols | hooks
    for verb in ("enable", "disable"):
        words = ["--tracer", "nop"] if verb == "enable" else []
        done = ftpatch(verb, cart, "-f", text, *words, "--dry-run")
        assert done.code == 0 and f"{len(symbols)} selected" in done.out
    told = ftpatch("report", trace, "-f", text, "--json", "--no-demangle").json
    assert {row["function"] for row in told} == symbols
    plain = {row["function"] for row in ftpatch("report", trace, "-f", text, "--json").json}
    shown = subprocess.run(
        ["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True
    )
    assert plain == set(shown.stdout.split("\n")) - {""}
    if len(symbols) == 1 and "*" not in text:
        done = ftpatch("probe", cart, f"p {text}", "--dry-run", "--json")
        assert json.loads(done.out)["definition"].endswith(f" {min(symbols)}")


def test_people_see_what_sources_say(cart: Path) -> None:
    assert " shop::Cart::add(int)+0x0 " in ftpatch("list", cart).out
    assert ADD not in ftpatch("list", cart).out


def test_so_they_do_of_what_is_wrong_or_differs(cart: Path, tmp_path: Path) -> None:
    """In text; JSON has the symbol table's names."""
    (site,) = ftpatch("list", cart, "-f", ADD2, "--json").json
    data = bytearray(cart.read_bytes())
    data[site["offset"] : site["offset"] + 5] = b"\xcc" * 5
    bad = tmp_path / "bad"
    bad.write_bytes(data)
    found = "site-known: " + site["ip"] + " shop::Cart::add(int, int)+0x0: "
    for form in ("text", "github", "junit", "sarif"):
        assert found in ftpatch("check", bad, "--format", form).out
    assert f'"{ADD2}+0x0"' in ftpatch("check", bad, "--json").out
    refused = ftpatch("enable", bad, "--tracer", "nop")
    assert refused.code == 1 and refused.err.count("shop::Cart::add(int, int)+0x0/0x") == 2
    words = ("-f", ADD, "--to", "shop::other()", "-v", "-o", tmp_path / "out")
    assert "shop::Cart::add(int)+0x0" in ftpatch("enable", cart, *words).out
    differs = ftpatch("diff", cart, tmp_path / "out").out
    assert "shop::Cart::add(int)+0x0" in differs and "call shop::other()" in differs
    assert "_Z" not in differs + refused.err
    subprocess.run(["objcopy", tmp_path / "out", tmp_path / "copy"], check=True)
    calls = ftpatch("check", tmp_path / "copy")  # without the journal
    assert calls.code == 1 and "calls shop::other(), which is not one of" in calls.out


def test_a_callee_by_its_name(cart: Path) -> None:
    def enable(callee: str) -> str:
        done = ftpatch("enable", cart, "-f", "fib", "--to", callee, "--dry-run")
        return done.err if done.code else done.out

    for name in ("shop::other", "shop::other()", "_ZN4shop5otherEv", "shop::hook(int)"):
        assert "1 selected: 1 changed" in enable(name)
    assert "symbol 'shop::hook' is ambiguous (2 definitions); use one of 0x" in enable("shop::hook")
    assert "no such symbol 'shop::othr'; did you mean shop::other" in enable("shop::othr")
    assert "no such symbol 'othre'; did you mean shop::other" in enable("othre")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("list PROG -f fibb", "matches no site; did you mean fib?"),
        ("list PROG -n shop::Cart::ad", "matches no site; did you mean shop::Cart::add?"),
        ("disable PROG -f fibb*", "matches no site; did you mean fib?"),
        ("enable PROG --tracer functoin", "unknown tracer 'functoin'; did you mean function"),
        ("enable PROG --tracer functoin -o KERNEL", "unknown tracer 'functoin'"),
        ("enable PROG --tracer graph", "unknown tracer 'graph'; did you mean function_graph?"),
        ("enable PROG --tracer Function", "unknown tracer 'Function'; did you mean function?"),
        ("trace -f shop::Crt::add PROG", "did you mean shop::Cart::add"),
        ("trace --format flamegrph PROG", "unknown format 'flamegrph'; did you mean flamegraph?"),
        ("report TRACE -f fibb", "no function in the trace; did you mean fib?"),
        ("report TRACE --format perfeto", "unknown format 'perfeto'; did you mean perfetto?"),
        ("probe PROG p@fibb", "no such function 'fibb'; did you mean fib?"),
        ("enabel PROG", "did you mean enable?"),
        ("list PROG --fromat json", "did you mean --format?"),
        ("enable KERNEL --site ftrace_cal --to do_exit", "; did you mean ftrace_call"),
        ("enable KERNEL --to do_exti", "no such symbol 'do_exti'; did you mean do_exit"),
        ("enable KERNEL --tracer boot --until do_exti", "such function; did you mean do_exit?"),
        ("list KERNEL -f vfs_raed", "matches no site; did you mean vfs_read"),
        ("list KERNEL -f vfs_raed:mod:vmlinux", "matches no site"),
        ("list KERNEL --format jsn", "unknown format 'jsn'; did you mean json?"),
        ("check KERNEL --format junt", "unknown format 'junt'; did you mean junit?"),
        ("disable KERNEL --nop nop6", "has no NOP 'nop6'; did you mean nop5 or p6?"),
        ("enable KERNEL --tracer boot --sink seral", "sink seral for x86_64; did you mean serial?"),
        ("boot KERNEL --sink seral", "unsupported sink seral for x86_64; did you mean serial?"),
        ("probe PROG p@fib@$retvl", "'p fib $retvl'; did you mean $retval?"),
        ("probe PROG p@fib@%rdii", "'p fib %rdii'; did you mean %rdi or %di?"),
        ("probe PROG p@fib@$arg1:strng", "'p fib $arg1:strng'; did you mean string?"),
        ("trace envv", "no such program 'envv'; did you mean env"),
        ("list KERNEL -f ftrace_caller", "matches no site; see `ftpatch list`"),
    ],
)
def test_what_may_be_meant_is_said(
    words: str, meant: str, cart: Path, trace: Path, tmp_path: Path
) -> None:
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(fentry_kernel().build())
    places = {"PROG": cart, "TRACE": trace, "KERNEL": kernel}
    done = ftpatch(*(places.get(word, word.replace("@", " ")) for word in words.split()))
    assert done.code in (2, 125) and meant in done.err, done.err
    assert done.err.count("\n") == 1 and not [row for row in done.out.splitlines() if row[0] != "#"]


def test_filters_of_a_program_and_its_libraries(cart: Path, tmp_path: Path) -> None:
    (tmp_path / "lib.c").write_text("int work(int n) { return n + 1; }")
    (tmp_path / "main.c").write_text("int work(int); int main(void) { return work(1); }")
    words = ["gcc", "-O1", "-fpatchable-function-entry=5"]
    subprocess.run([*words, "-shared", "-fPIC", "lib.c", "-o", "libw.so"], check=True, cwd=tmp_path)
    linked = ["-L.", "-lw", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*words, "main.c", "-o", "main", *linked], check=True, cwd=tmp_path)
    done = ftpatch("trace", "--lib", "libw*", "-f", "wokr", tmp_path / "main")
    assert done.code == 125 and done.err.endswith("matches no site; did you mean work?\n")
