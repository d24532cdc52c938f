# SPDX-License-Identifier: MIT
"""Names of variables: those of the symbol table, of versions, of C++ sources, and addresses."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.tracer_programs import Form, build
from tests.support.watch_programs import build_watched, refusal, rows_of, run_watched


def test_names_that_several_have(tmp_path: Path) -> None:
    for name, more in (("a", ""), ("b", ""), ("c", "int twice; ")):
        static = "" if name == "c" else "static volatile int same, twice; "
        body = (
            f"{static}{more}int {name}(void) {{ return {'0' if name == 'c' else 'same + twice'}; }}"
        )
        main = "int a(void), b(void); int main(void) { return a() + b(); }" if name == "c" else ""
        (tmp_path / f"{name}.c").write_text(f"{body}\n{main}\n")
    program = tmp_path / "several"
    sources = [str(tmp_path / f"{name}.c") for name in "abc"]
    subprocess.run(["gcc", "-w", "-O1", *sources, "-o", str(program)], check=True)
    result = ftpatch("watch", program, "same:rw-", "--dry-run")
    assert result.code == 2 and "same: ambiguous variable name: 0x" in result.err
    assert ftpatch("watch", program, "twice:rw-", "--dry-run").code == 0


def test_a_stripped_program_has_its_dynamic_symbols(tmp_path: Path) -> None:
    source, program = tmp_path / "v.c", tmp_path / "v"
    source.write_text("volatile int v; int main(void) { return v; }\n")
    subprocess.run(["gcc", "-rdynamic", "-s", str(source), "-o", str(program)], check=True)
    assert ftpatch("watch", program, "v:rw-", "--dry-run").code == 0
    subprocess.run(["gcc", "-s", str(source), "-o", str(program)], check=True)
    assert "v: no such symbol" in ftpatch("watch", program, "v:rw-", "--dry-run").err


def test_addresses(tmp_path: Path) -> None:
    plain, path = build(Form(site="none"), "watched.c", tmp_path), tmp_path / "address"
    address = ftpatch("watch", plain, "counter:rw-", "--dry-run", "--json").only["address"]
    assert ftpatch("watch", plain, f"rw@0x000{address[2:]}:2", "-o", path).code == 0
    assert ftpatch("watch", path).out == f"rw@{address}:2\n"
    assert ftpatch("watch", path, "counter:---", "--in-place").code == 0
    main = next(row for row in subprocess.check_output(["nm", plain], text=True).splitlines()
                if row.endswith(" main"))  # fmt: skip
    result = ftpatch("watch", plain, f"0x{main.split()[0]}:rw-", "-o", "x")
    assert result.code == 2 and "it is code; use `ftpatch probe`" in result.err


def test_names_of_sources(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    source, program, patched = tmp_path / "n.cpp", tmp_path / "n", tmp_path / "patched"
    source.write_text(
        "#include <iostream>\n"
        "namespace shop { struct Cart { static volatile long total; }; volatile long Cart::total;\n"
        'namespace { volatile int own; } [[gnu::abi_tag("cxx11")]] volatile int names; }\n'
        "int sell(int n) { static volatile int calls; calls = n;\n"
        "return shop::own + shop::names; }\n"
        "int main() { std::cout << sell(shop::Cart::total); return 0; }\n"
    )
    subprocess.run(["g++", "-O1", "-no-pie", str(source), "-o", str(program)], check=True)
    names = ["shop::Cart::total", "shop::(anonymous namespace)::own", "shop::names[abi:cxx11]",
             "sell(int)::calls"]  # fmt: skip
    for name, mangled in zip(names, ["_ZN4shop4Cart5totalE"], strict=False):
        assert ftpatch("watch", program, f"{mangled}:rw-", "--dry-run").out.startswith(
            f"{name}:rw-"
        )
    assert ftpatch("watch", program, *(f"{name}:rw-" for name in names), "-o", patched).code == 0
    assert ftpatch("watch", patched).out.splitlines() == [f"{name}:rw-" for name in names]
    assert ftpatch("watch", patched, f"{names[0]}:---", "--in-place").code == 0
    assert "std::cout@" in ftpatch("watch", program, "std::cout:rw-", "--dry-run").out
    for wrong in ("shop::Cart::totl", "total", "shop::cart::total"):
        result = ftpatch("watch", program, f"{wrong}:rw-", "-o", "x")
        assert result.code == 2 and result.err.endswith("did you mean shop::Cart::total?\n")


def test_a_static_program_without_symbols(tmp_path: Path) -> None:
    """What it asks the kernel about SIGTRAP is met at its system calls, which need no names."""
    if refusal():
        pytest.skip(refusal())
    plain, stripped = build_watched(tmp_path, "static"), tmp_path / "stripped"
    subprocess.run(["strip", str(plain), "-o", str(stripped)], check=True)
    result = ftpatch("watch", stripped, "counter:rw-", "-o", "x")
    assert "no such symbol; the program is stripped; use an address" in result.err
    address = ftpatch("watch", plain, "counter:rw-", "--dry-run", "--json").only["address"]
    seen = []
    for program, request in ((plain, "counter:rw-"), (stripped, f"{address}:rw-")):
        target = program.with_name(f"{program.name}.patched")
        assert ftpatch("watch", program, request, "-o", target).code == 0
        done, trace = run_watched(target, "threads", trace=f"{program.name}.trace")
        assert (done.returncode, done.stderr) == (0, b"")
        ends = [row for row in rows_of(trace) if "hits" in row]
        seen.append([(row["hits"], row["missed"], row["errno"]) for row in ends])
    assert seen[0] == seen[1] and seen[0][0][0] > 30
