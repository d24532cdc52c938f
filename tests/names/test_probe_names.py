# SPDX-License-Identifier: MIT
"""Functions by the names that people give them: imported ones, and those of C++."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.x86_64.branches import BRANCHES
from tests.support.command import PATIENCE, ftpatch

CPP = """
#include <cstdio>
#include <string>
int table[4];
namespace shop {
struct Cart {
        int total = 0;
        __attribute__((noinline)) int add(int n);
        __attribute__((noinline)) int add(int n, int m);
        __attribute__((noinline)) bool operator==(const Cart &other) const;
};
int Cart::add(int n) { asm volatile(""); return total += n; }
int Cart::add(int n, int m) { asm volatile(""); return total += n * m; }
bool Cart::operator==(const Cart &other) const { asm volatile(""); return other.total == total; }
template <class T> __attribute__((noinline)) T most(T a, T b)
{
        asm volatile("");
        return a > b ? a : b;
}
}
namespace { __attribute__((noinline)) int hidden(int a) { asm volatile(""); return a + 1; } }
int main()
{
        shop::Cart cart, other;
        cart.add(1);
        cart.add(2, 3);
        std::string text(100, 'x');
        return printf("%d %d %d %zu\\n", shop::most<int>(1, 2), hidden(3), cart == other,
                      text.size()) < 0;
}
"""
CALLS = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
        for (int i = 0; i < 5; i++)
                printf("%s\\n", getenv("NAME"));
        char *line = malloc(atoi("100"));
        snprintf(line, 100, "%d", 12);
        return puts(line) < 0;
}
"""


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of C++, with symbols."""
    folder = tmp_path_factory.mktemp("cart")
    (folder / "cart.cc").write_text(CPP)
    program = folder / "cart"
    subprocess.run(["g++", "-O1", folder / "cart.cc", "-o", program], check=True)
    return program


def _hits(program: Path, *probes: str) -> tuple[dict[str, int], list[dict[str, object]], str]:
    """Hits of each probe, the events, and what the program printed."""
    out, trace = program.with_name("probed"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", out, "--force")
    assert done.code == 0, done.err
    trace.unlink(missing_ok=True)
    env = {"FTPATCH_TRACE": str(trace), "NAME": "value"}
    ran = subprocess.run(
        [out], env=env, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    rows = [json.loads(line) for line in ftpatch("report", trace, "--json").out.splitlines()]
    sums = {row["probe"]: row["hits"] for row in rows if "hits" in row}
    return sums, [row for row in rows if "hits" not in row], ran.stdout


@pytest.mark.parametrize(
    ("name", "mangled"),
    [
        ("shop::Cart::add(int)", "_ZN4shop4Cart3addEi"),
        ("shop::Cart::add(int,int)", "_ZN4shop4Cart3addEii"),
        ("shop::Cart::add(int, int)", "_ZN4shop4Cart3addEii"),
        ("shop::Cart::operator==(shop::Cart const&) const", "_ZNK4shop4CarteqERKS0_"),
        ("shop::most< int >(int, int)", "_ZN4shop4mostIiEET_S1_S1_"),
        ("_ZN4shop4Cart3addEii", "_ZN4shop4Cart3addEii"),
        ("shop::Cart::operator==", "_ZNK4shop4CarteqERKS0_"),
        ("shop::most<int>", "_ZN4shop4mostIiEET_S1_S1_"),
        ("shop::most<int>(int,int)", "_ZN4shop4mostIiEET_S1_S1_"),
        ("(anonymous namespace)::hidden", "_ZN12_GLOBAL__N_16hiddenEi"),
    ],
)
def test_a_function_may_be_named_as_its_source_has_it(cart: Path, name: str, mangled: str) -> None:
    hits, _, _ = _hits(cart, f"p:it {name} n=$arg1")
    assert hits == {"it": 1}
    told = ftpatch("probe", cart.with_name("probed"))
    assert told.out == f"p:probes/it {mangled} n=$arg1\n"


def test_an_offset_stands_behind_parameters(cart: Path) -> None:
    done = ftpatch("probe", cart, "p shop::Cart::add(int)+0", "--dry-run", "--json")
    assert json.loads(done.out)["definition"].endswith(" _ZN4shop4Cart3addEi")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop::Cart::add", "is ambiguous (2 definitions)"),
        ("Cart::add", "did you mean shop::Cart::add"),
        ("mian", "did you mean main?"),
        ("hiden", "did you mean (anonymous namespace)::hidden?"),
        ("table", "'table' is not a function; `ftpatch watch` it"),
        ("main n=@tabel", "@tabel: no such symbol; did you mean table?"),
        ("qqqqqq", "use its address: 0x..."),
    ],
)
def test_what_is_not_there_is_told_with_what_may_be_meant(cart: Path, name: str, said: str) -> None:
    done = ftpatch("probe", cart, f"p {name}", "--dry-run")
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("how", [[], ["--no-optimize"]], ids=["jump", "trap"])
@pytest.mark.parametrize("link", [[], ["-no-pie", "-Wl,-z,lazy"]], ids=["now", "lazy"])
def test_what_a_stripped_program_imports_is_counted(
    tmp_path: Path, how: list[str], link: list[str]
) -> None:
    (tmp_path / "calls.c").write_text(CALLS)
    program = tmp_path / "calls"
    subprocess.run(
        ["gcc", "-O1", "-fno-builtin", "-s", *link, tmp_path / "calls.c", "-o", program], check=True
    )
    hits, events, printed = _hits(
        program,
        *how,
        "r:env getenv value=+0($retval):string",
        "p:of getenv@plt name=+0($arg1):string",
        "r:lines printf $retval:s32",
        "p:room malloc size=$arg1:u64",
        "p:last puts text=+0($arg1):string",
    )
    assert printed == "value\n" * 5 + "12\n"
    assert hits == {"env": 5, "of": 5, "lines": 5, "room": 1, "last": 1}
    held = [(row["probe"], row["values"]) for row in events]
    assert held.count(("of", {"name": "NAME"})) == 5
    assert held.count(("env", {"value": "value"})) == 5
    assert ("room", {"size": 100}) in held
    text = ftpatch("report", program.with_name("trace")).out
    assert text.count("of: (getenv@plt+0x0/0x10) name=") == 5
    assert ("last", {"text": "12"}) in held


def test_what_is_imported_without_an_entry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "calls.c").write_text(CALLS)
    program = tmp_path / "calls"
    subprocess.run(
        ["gcc", "-O1", "-fno-builtin", "-fno-plt", tmp_path / "calls.c", "-o", program], check=True
    )
    done = ftpatch("probe", program, "p getenv", "--dry-run")
    assert done.code == 2
    assert "'getenv' is imported and has no PLT entry; probe its caller" in done.err


@pytest.mark.parametrize("link", [["-s"], ["-static"]], ids=["imported", "built-in"])
def test_a_return_that_comes_twice_is_not_awaited(tmp_path: Path, link: list[str]) -> None:
    """setjmp keeps the address that it returns to, which would be the runtime's."""
    (tmp_path / "twice.c").write_text(
        "#include <setjmp.h>\n#include <unistd.h>\nstatic jmp_buf place;\n"
        "int main(void) { if (setjmp(place) == 0) longjmp(place, 1);\n"
        "if (vfork() == 0) _exit(0); return 0; }\n"
    )
    program = tmp_path / "twice"
    subprocess.run(["gcc", "-O1", *link, tmp_path / "twice.c", "-o", program], check=True)
    for name in ("_setjmp", "vfork"):
        refused = ftpatch("probe", program, f"r:late {name}", "--dry-run")
        assert refused.code == 2
        assert "returns twice per call; use a p probe" in refused.err
    hits, _, _ = _hits(program, "p:set _setjmp", "p:jump longjmp", "p:fork vfork")
    assert hits["set"] >= 1  # of a static glibc, its own
    assert (hits["jump"], hits["fork"]) == (1, 1)


def test_the_plt_is_read_once_for_all_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calls.c").write_text(CALLS)
    program = tmp_path / "calls"
    subprocess.run(["gcc", "-O1", "-fno-builtin", "-s", tmp_path / "calls.c", "-o", program])
    read: list[int] = []

    def counted(insns: Iterable[Instruction]) -> bool:
        read.append(1)
        return BRANCHES.has_indirect_jump(insns)

    branches = replace(BRANCHES, has_indirect_jump=counted)
    monkeypatch.setattr("ftpatch.inject.boundaries.branches_of", lambda _: branches)
    names = ("getenv", "printf", "malloc", "snprintf", "puts")
    done = ftpatch("probe", program, *[f"p {name}" for name in names], "--dry-run")
    assert done.out.count("  jump  ") == len(names), done.out + done.err
    assert len(read) == 1


def test_arguments_at_an_address_need_an_entry(cart: Path) -> None:
    listed = subprocess.run(["nm", cart], capture_output=True, text=True, check=True).stdout
    at = next(line.split()[0] for line in listed.splitlines() if line.endswith(" main"))
    assert ftpatch("probe", cart, f"p 0x{at} $arg1", "--dry-run").code == 0
    refused = ftpatch("probe", cart, f"p 0x{int(at, 16) + 1:x} $arg1", "--dry-run")
    assert refused.code == 2
    assert "$argN can be used only on function entry" in refused.err


def test_a_library_that_runs_is_no_program() -> None:
    libc = Path("/lib/x86_64-linux-gnu/libc.so.6")
    if not libc.exists() or shutil.which("readelf") is None:
        pytest.skip("no such libc")
    headers = subprocess.run(["readelf", "-lW", libc], capture_output=True, text=True, check=True)
    assert "INTERP" in headers.stdout
    done = ftpatch("probe", libc, "p malloc", "--dry-run")
    assert done.code == 2
    assert "libc.so.6 runs before a tracer" in done.err and "'p libc.so.6:FUNC'" in done.err


def test_without_probes_those_of_a_file_are_told(cart: Path, tmp_path: Path) -> None:
    assert ftpatch("probe", cart).code == 2
    assert "no probes in this program" in ftpatch("probe", cart).err
    out = tmp_path / "probed"
    assert ftpatch("probe", cart, "p:m main+0 x=%rdi:s32", "r7:h main", "-o", out).code == 0
    rows = [json.loads(line) for line in ftpatch("probe", out, "--json").out.splitlines()]
    assert [(row["definition"], row["way"]) for row in rows] == [
        ("p:probes/m main x=%rdi:s32", "jump"),
        ("r7:probes/h main", "jump"),
    ]
    assert "`ftpatch probe FILE` lists what was inserted" in ftpatch("list", out).err
    status = ftpatch("status", out)
    assert status.code == 0
    assert "has 2 probes: p:probes/m main x=%rdi:s32, r7:probes/h main" in status.out
    refused = ftpatch("probe", out, "p:m main", "-o", tmp_path / "more")
    assert refused.code == 2
    assert "m is in this program already" in refused.err
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("named", "clone", "meant"),
    [
        ("_ZN4shop4mostIiEET_S1_S1_", ".isra.0", "shop::most<int>"),
        ("_ZN4shop4mostIiEET_S1_S1_", ".constprop.0.isra.0", "shop::most"),
        ("_ZN4shop4mostIiEET_S1_S1_", ".part.0", "_ZN4shop4mostIiEET_S1_S1_"),
        ("main", ".part.0", "main"),
    ],
)
def test_a_function_of_which_there_is_only_a_clone(
    cart: Path, tmp_path: Path, named: str, clone: str, meant: str
) -> None:
    """What gcc's interprocedural passes call it; objcopy gives the name here."""
    cloned = tmp_path / "cloned"
    names = f"{named}={named}{clone}"
    subprocess.run(["objcopy", "--redefine-sym", names, cart, cloned], check=True)
    done = ftpatch("probe", cloned, f"p {meant}", "--dry-run")
    why = f"{meant!r} is there only as a clone, whose arguments may be others"
    assert (done.code, done.err) == (2, f"ftpatch: {cloned}: {why}; use {named}{clone}\n")
    assert ftpatch("probe", cloned, f"p {named}{clone}", "--dry-run").code == 0


def test_a_cold_part_is_no_clone_to_probe(cart: Path, tmp_path: Path) -> None:
    cold, symbol = tmp_path / "cold", "_ZN4shop4mostIiEET_S1_S1_"
    names = f"{symbol}={symbol}.cold"
    subprocess.run(["objcopy", "--redefine-sym", names, cart, cold], check=True)
    done = ftpatch("probe", cold, "p shop::most", "--dry-run")
    assert done.code == 2 and "no such function 'shop::most'" in done.err
    assert "shop::most?" not in done.err and "shop::most or" not in done.err
