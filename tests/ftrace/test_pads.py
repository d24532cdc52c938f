# SPDX-License-Identifier: MIT
"""Programs compiled here, with pads of every length, run before and after."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.compiled import TARGETS

X86_PADS = ["5", "6", "7", "8", "9", "10", "11", "14", "16", "20"]
X86_PREFIXED = ["7,2", "10,3", "8,2", "15,5", "20,4"]
ENDBR, BTI = ["-fcf-protection=branch"], ["-mbranch-protection=standard"]
NO_C = ["-march=rv64g", "-mabi=lp64d"]
PADS = [
    *(("x86_64", pad, []) for pad in (*X86_PADS, *X86_PREFIXED)),
    *(("x86_64", pad, ENDBR) for pad in ("5", "7,2", "16,8")),
    *(("i386", pad, ["-march=i686"]) for pad in ("5", "7", "9", "7,2", "12,4")),
    *(("i386", pad, ["-march=i586"]) for pad in ("5", "8", "7,2")),  # without nopl
    *(("arm64", pad, []) for pad in ("2", "3", "5", "3,1", "4,2", "6,4", "8,2")),
    *(("arm64", pad, BTI) for pad in ("2", "4,2")),
    *(("riscv64", pad, []) for pad in ("4", "5", "6", "8", "5,1", "6,2", "8,4", "12,8", "9,1")),
    *(("riscv64", pad, NO_C) for pad in ("2", "3", "3,1", "4,2")),
    *(("s390x", pad, []) for pad in ("3", "4", "5", "9", "4,1", "9,4")),
    *(("ppc64le", pad, []) for pad in ("2", "3", "6", "3,1", "4,2")),
]
GCC_ONLY = ("s390x", "ppc64le")
"""clang 14 leaves no pads for these."""
COMPILED = [
    (compiler, *pad)
    for compiler in ("gcc", "clang")
    for pad in PADS
    if compiler == "gcc" or pad[0] not in GCC_ONLY
]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86-64 programs")
X86_64 = TARGETS["x86_64"]


@pytest.mark.parametrize(("compiler", "arch", "pad", "flags"), COMPILED)
def test_every_pad_is_called_and_undone(
    tmp_path: Path, compiler: str, arch: str, pad: str, flags: list[str]
) -> None:
    target = TARGETS[arch]
    entry = f"-fpatchable-function-entry={pad}"
    program = target.build(tmp_path, (compiler, [entry, "-fno-pie", *flags]))
    original = program.read_bytes()
    assert target.run(program) == "27 0\n"
    done = ftpatch("enable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert target.run(program) == "27 3\n"
    assert ftpatch("check", program).code == 0
    done = ftpatch("disable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert target.run(program) == "27 0\n"
    assert ftpatch("undo", "--all", program).code == 0
    assert program.read_bytes() == original


ALL_BEFORE = [("x86_64", "5,5"), ("arm64", "2,2"), ("riscv64", "4,4"), ("s390x", "3,3"),
              ("ppc64le", "2,2")]  # fmt: skip
LITTLE_BEHIND = [("x86_64", "7,3"), ("arm64", "3,2"), ("riscv64", "6,3"), ("s390x", "5,3"),
                 ("ppc64le", "3,2")]  # fmt: skip


@pytest.mark.parametrize(("arch", "pad"), [*ALL_BEFORE, *LITTLE_BEHIND])
def test_nops_before_a_function_are_no_sites(tmp_path: Path, arch: str, pad: str) -> None:
    program = TARGETS[arch].build(tmp_path, ("gcc", [f"-fpatchable-function-entry={pad}"]))
    status = ftpatch("status", "--json", program).only
    assert (status["records"], status["sites"]) == (2, 0)
    before = program.read_bytes()
    assert ftpatch("enable", "--json", "--in-place", program).only["changed"] == 0
    assert program.read_bytes() == before


SHORT = [("x86_64", "4"), ("arm64", "1"), ("riscv64", "3"), ("s390x", "2"), ("ppc64le", "1")]


@pytest.mark.parametrize(("arch", "pad"), SHORT)
def test_pads_shorter_than_a_call_are_refused(tmp_path: Path, arch: str, pad: str) -> None:
    program = TARGETS[arch].build(tmp_path, ("gcc", [f"-fpatchable-function-entry={pad}"]))
    before = program.read_bytes()
    done = ftpatch("enable", "--json", "--in-place", program)
    assert done.code == 1 and len(done.only["failed"]) == 2
    assert all(row["reason"].startswith("EINVAL") for row in done.only["failed"])
    assert program.read_bytes() == before


DEAD = "int dead(int a) { return a * 7; }\n"
COLLECTED = {"x86_64": 5, "arm64": 2, "riscv64": 4, "s390x": 3, "ppc64le": 2}
"""NOPs of a pad."""
BY_EACH = [("gcc", arch) for arch in COLLECTED]
BY_EACH += [("clang", arch) for arch in COLLECTED if arch not in GCC_ONLY]


@pytest.mark.parametrize(("compiler", "arch"), BY_EACH)
@pytest.mark.parametrize("pie", [[], ["-pie"]], ids=["no-pie", "pie"])
def test_records_of_collected_functions_go_with_them(
    tmp_path: Path, compiler: str, arch: str, pie: list[str]
) -> None:
    """--gc-sections: a record's section is linked to that of its function (SHF_LINK_ORDER)."""
    target, size = TARGETS[arch], COLLECTED[arch]
    flags = [f"-fpatchable-function-entry={size}", "-ffunction-sections"]
    flags.append("-fPIE" if pie else "-fno-pie")
    source = tmp_path / "dead.c"
    source.write_text(DEAD)
    dead = target.compile(compiler, flags, source)
    linked = [str(dead), *(pie or ["-no-pie"])]
    program = target.build(tmp_path, (compiler, flags), flags=linked)
    assert ftpatch("status", "--json", program).only["records"] == 3
    program = target.build(
        tmp_path, (compiler, flags), flags=[*linked, "-Wl,--gc-sections,-u,ftrace_caller"]
    )
    status = ftpatch("status", "--json", program).only
    assert (status["records"], status["null"], status["sites"]) == (2, 0, 2)
    assert {row["symbol"] for row in ftpatch("list", "--json", program).json} == {"one", "two"}
    assert ftpatch("enable", "--in-place", program).code == 0
    assert ftpatch("check", program).code == 0
    assert target.run(program) == "27 3\n"


APART = """
SECTIONS { second_table : { *1.o(__patchable_function_entries) } } INSERT BEFORE .data;
SECTIONS { third_table : { *2.o(__patchable_function_entries) } } INSERT AFTER .data;
"""


@pytest.mark.parametrize("arch", COLLECTED)
@pytest.mark.parametrize("pie", [[], ["-pie"]], ids=["no-pie", "pie"])
def test_several_tables_of_one_name(tmp_path: Path, arch: str, pie: list[str]) -> None:
    """Sections of one name that a linker script keeps apart are parts of one table."""
    target, size = TARGETS[arch], COLLECTED[arch]
    script = tmp_path / "apart.lds"
    script.write_text(APART)
    flags = [f"-fpatchable-function-entry={size}", "-fPIE" if pie else "-fno-pie"]
    other = ["-fpatchable-function-entry=16", "-Dother=third", *flags[1:]]
    objects = [("gcc", flags), ("gcc", flags), ("gcc", other)]
    linked = [*(pie or ["-no-pie"]), f"-Wl,-T,{script}"]
    program = target.build(tmp_path, *objects, flags=linked)
    names = [
        f"--rename-section={n}_table=__patchable_function_entries" for n in ("second", "third")
    ]
    objcopy = target.gcc.removesuffix("gcc") + "objcopy"
    subprocess.run([objcopy, *names, str(program)], check=True)
    status = ftpatch("status", "--json", program).only
    assert (status["records"], status["sites"]) == (4, 4)
    original = program.read_bytes()
    assert ftpatch("enable", "--json", "--in-place", program).only["changed"] == 4
    assert ftpatch("check", program).code == 0
    assert target.run(program) == "27 3\n"
    assert ftpatch("undo", program).code == 0 and program.read_bytes() == original


@pytest.mark.parametrize("nop", ["p6", "nop5", "jmp"])
def test_another_nop_over_a_pad(tmp_path: Path, nop: str) -> None:
    program = X86_64.build(tmp_path, ("clang", ["-fpatchable-function-entry=9", "-fno-pie"]))
    done = ftpatch("disable", "--json", "--in-place", "--nop", nop, program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert X86_64.run(program) == "27 0\n"


def test_objects_compiled_in_both_ways(tmp_path: Path) -> None:
    """One table of calls and one of pads: both are the table."""
    fentry = ["-pg", "-mfentry", "-mrecord-mcount", "-fno-pie"]
    program = X86_64.build(
        tmp_path, ("gcc", ["-fpatchable-function-entry=5", "-fno-pie"]), ("gcc", fentry)
    )
    status = ftpatch("status", "--json", program).only
    assert status["table"] == "__mcount_loc,__patchable_function_entries"
    assert status["states"] == {"nop": 2, "call": 1, "unexpected": 0}
    done = ftpatch("enable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 3), done.err
    assert X86_64.run(program) == "27 3\n"


def test_a_site_that_the_loader_writes_to_is_refused(tmp_path: Path) -> None:
    """A library with text relocations: what stands at its sites is not what will be executed."""
    compiler = "i686-linux-gnu-gcc"
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source, library = tmp_path / "text.c", tmp_path / "text.so"
    source.write_text("int g(int x) { return x * 2 + 1; }\n")
    flags = ["-O1", "-shared", "-fno-pic", "-pg", "-mfentry", "-mrecord-mcount", "-Wl,-z,notext"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    before = library.read_bytes()
    done = ftpatch("disable", "--json", "--in-place", library)
    assert done.code == 1
    assert done.only["failed"][0]["reason"] == (
        "EINVAL: a relocation overwrites it when the file is loaded"
    )
    assert library.read_bytes() == before
    assert "site-relocated" in [
        row["invariant"] for row in ftpatch("check", "--json", library).json
    ]


def test_an_indirect_function_is_no_callee(tmp_path: Path) -> None:
    """Sites would call the resolver instead of what it chooses."""
    program = X86_64.build(tmp_path, ("gcc", ["-fpatchable-function-entry=5", "-fno-pie"]))
    more = tmp_path / "ifunc.c"
    more.write_text(
        "static void f(void) {}\nstatic void *pick(void) { return f; }\n"
        'void chosen(void) __attribute__((ifunc("pick")));\n'
    )
    objects = [str(tmp_path / name) for name in ("caller.o", "0.o")]
    subprocess.run(["gcc", "-no-pie", *objects, str(more), "-o", str(program)], check=True)
    done = ftpatch("enable", "--to", "chosen", "--in-place", program)
    assert done.code == 2
    assert "not a function that can be called directly" in done.err
