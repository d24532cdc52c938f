# SPDX-License-Identifier: MIT
"""``--libcalls``: what a program calls in libraries, against uftrace and the program's source."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch, ftpatch_process
from tests.support.cross_root import CROSS, use_cross_root
from tests.support.gnu import runner
from tests.support.library_programs import FORMS as LIBRARY_FORMS
from tests.support.library_programs import Form as LibraryForm
from tests.support.library_programs import build as build_with_library
from tests.support.library_programs import trace as trace_library
from tests.support.tracer_matrix import QUICK, SLOW, runs
from tests.support.tracer_programs import ARCHES, differences, libraries
from tests.support.tracer_programs import Form as ProgramForm
from tests.support.tracer_programs import build as build_program
from tests.support.tracer_programs import emulator as emulator_of

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
SOURCES = Path(__file__).parent.parent / "programs"
CALLS = Counter(
    ldiv=1,
    __cxa_atexit=1,
    sqrt=1,
    snprintf=1,
    puts=1,
    cexp=2,
    printf=8,
    qsort=1,
    abs=6,
    powl=1,
    strtol=2,
    pthread_create=3,
    pthread_join=3,
    strdup=3,
    free=3,
    strlen=4,
    fflush=3,
    fork=1,
    waitpid=2,
)
"""Calls of tests/programs/imports.c that return once or are left."""
OTHERS = Counter(_setjmp=1, longjmp=1, vfork=1, _exit=2, exit=1)
"""Its calls that return twice, or never."""
STRANGE = {"fork", "qsort", *OTHERS}
"""What uftrace counts by returns: none, or two."""
RECORDING = ("function_graph", "function", "function_profile")
STATUS = 9
COMPILERS = {"bfd": ("gcc",), "lld": ("clang", "-fuse-ld=lld"), "mold": ("gcc", "-fuse-ld=mold")}
LINKS = {"pie": ("-pie", "-fPIE"), "no-pie": ("-no-pie", "-fno-pie")}
GUARDS = {
    "plain": ("-fcf-protection=none",),
    "ibt": ("-fcf-protection=full", "-Wl,-z,ibtplt"),
    "padded": ("-fpatchable-function-entry=5",),
}
ARM = {
    "plain": ("-mbranch-protection=none",),
    "bti": ("-mbranch-protection=bti", "-Wl,-z,force-bti"),
    "pac": ("-mbranch-protection=standard", "-Wl,-z,pac-plt"),
    "padded": ("-fpatchable-function-entry=2",),
}
PREFIX = "aarch64-linux-gnu"
RISCV: dict[str, tuple[str, ...]] = {
    "plain": ("-fpatchable-function-entry=0",),
    "padded": ("-fpatchable-function-entry=4",),
}
PADLESS = {"plain": RISCV["plain"]}
OWN: dict[str, dict[str, tuple[str, ...]]] = {
    "arm64": ARM,
    "loongarch64": {**PADLESS, "padded": ARM["padded"]},
    "riscv64": RISCV,
    "arm": {
        **{kind: (f"-m{kind}", *PADLESS["plain"]) for kind in ("arm", "thumb")},
        "long": ("-mthumb", "-Wl,--long-plt", *PADLESS["plain"]),
        "padded": ("-fpatchable-function-entry=3",),
    },
    "ppc64le": {
        **PADLESS,
        "far": (
            *PADLESS["plain"],
            "-Wl,-Ttext-segment=0x10000000,--section-start=.plt=0x10200000",
        ),
        "padded": ("-fpatchable-function-entry=2",),
    },
    "s390x": {**PADLESS, "padded": ("-fpatchable-function-entry=3",)},
}
"""Of each architecture that is run by qemu; i386 has those of x86-64."""
NO_VFORK = ("-Dvfork=fork",)
"""Under qemu a vfork is a fork of which no libc knows."""


@dataclass(frozen=True)
class Form:
    """How the program is built."""

    arch: str = "x86_64"
    linker: str = "bfd"
    level: str = "O2"
    link: str = "pie"
    binding: str = "lazy"
    guard: str = "plain"

    def __str__(self) -> str:
        words = (self.arch, self.linker, self.level, self.link, self.binding, self.guard)
        return "-".join(words)

    @property
    def command(self) -> list[str]:
        """Compiler and flags."""
        words, made = COMPILERS[self.linker], ARCHES[self.arch]
        if self.arch != "x86_64":
            native = libraries(ProgramForm(self.arch, self.link), plus=False)
            words = (made.gcc, *made.flags, *native)
        guard = OWN.get(self.arch, GUARDS)[self.guard]
        if self.linker != "bfd":
            guard = tuple(word for word in guard if "ibtplt" not in word)
        how = (f"-{self.level}", *LINKS[self.link], f"-Wl,-z,{self.binding}", *guard)
        return [*words, *how, "-w", "-fno-builtin", "-pthread"]


LEVELS, BINDINGS = ("O0", "O2"), ("now", "lazy")
FORMS = [Form("x86_64", *words) for words in product(COMPILERS, LEVELS, LINKS, BINDINGS, GUARDS)]
OTHER_FORMS = [
    Form(arch, "bfd", *words)
    for arch, guards in (OWN | {"i386": GUARDS}).items()
    for words in product(LEVELS, LINKS, BINDINGS, guards)
]


def _built(
    folder: Path, form: Form = Form(), source: str = "imports.c", flags: tuple[str, ...] = ()
) -> Path:
    words, program = form.command, folder / "imports"
    if form.arch in CROSS:
        use_cross_root(form.arch)
    linker = shutil.which(f"ld.{form.linker}") if form.linker != "bfd" else "ld"
    if shutil.which(words[0]) is None or linker is None:
        pytest.skip(f"no {words[0]} or its linker")
    path = SOURCES / source
    done = subprocess.run(
        [*words, *flags, str(path), "-o", str(program), "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return program


def _run(*words: str | Path, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout


def _trace(program: Path, *options: str) -> tuple[tuple[int, str], list[dict[str, object]]]:
    """How a traced program ends, with what it prints, and the entries of its calls."""
    words = ("--libcalls", "--format", "json", *options, str(program))
    result = ftpatch_process("trace", *words)
    lines = result.out.splitlines()
    said = "".join(f"{line}\n" for line in lines if not line.startswith("{"))
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return (result.code, said), [one for one in events if one["event"] == "entry"]


def _reported(kept: Path) -> list[dict[str, object]]:
    """The entries of a recording, and of the child's."""
    files = sorted(kept.parent.glob(f"{kept.name}*"))
    said = ftpatch("report", *files, "--format", "json").json
    return [one for one in said if one["event"] == "entry"]


def _counted(entries: list[dict[str, object]]) -> Counter[str]:
    names = (str(one["function"]) for one in entries)
    return Counter(name.removesuffix("@plt") for name in names if name.endswith("@plt"))


def _by_uftrace(program: Path) -> Counter[str]:
    folder = program.with_name("uftrace")
    _run("uftrace", "record", "--force", "--no-event", "-d", folder, program)
    _, said = _run("uftrace", "report", "-d", folder, "-f", "call")
    rows = re.findall(r"^ +(\d+)  ([A-Za-z_]\w*)$", said, re.MULTILINE)
    return Counter({name: int(number) for number, name in rows if name not in STRANGE})


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_calls_are_those_of_the_source(form: Form, tmp_path: Path) -> None:
    program = _built(tmp_path, form)
    plain = _run(program)
    assert plain[0] == STATUS
    for tracer, expected in (("function_graph", CALLS), ("function", CALLS + OTHERS)):
        ended, entries = _trace(program, "--tracer", tracer)
        assert ended == plain, tracer
        assert _counted(entries) == expected, tracer


@pytest.mark.parametrize("guard", ["plain", "ibt"])
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("binding", BINDINGS)
def test_calls_are_those_of_uftrace(guard: str, link: str, binding: str, tmp_path: Path) -> None:
    if shutil.which("uftrace") is None:
        pytest.skip("no uftrace")
    program = _built(tmp_path, Form(link=link, binding=binding, guard=guard))
    _, entries = _trace(program, "--tracer", "function")
    ours = Counter({n: c for n, c in _counted(entries).items() if n not in STRANGE})
    assert ours == _by_uftrace(program)


@pytest.mark.parametrize("name", ["sort", "ls", "bash", "perl"])
def test_programs_of_the_distribution(name: str, tmp_path: Path) -> None:
    """They have no pads, and some thousand calls."""
    words = {
        "sort": ["/etc/passwd"],
        "ls": ["-l", "/usr/lib/os-release"],
        "bash": ["-c", "for i in 1 2 3; do echo $i$(echo a); done | cat; exit 3"],
        "perl": ["-e", 'print sort { $b <=> $a } map { $_ ** 2 } 1 .. 9; die "\\n"'],
    }[name]
    program = shutil.which(name, path="/usr/bin:/bin")
    if program is None:
        pytest.skip(f"no {name}")
    form = ("--tracer", "function_profile", "--report", f"json={tmp_path / 'report'}")
    traced = ftpatch_process("trace", "--libcalls", *form, "--", program, *words)
    assert (traced.code, traced.out) == _run(program, *words)
    names = [json.loads(line)["function"] for line in (tmp_path / "report").open()]
    assert len(names) > 10 and all(name.endswith("@plt") for name in names)


@pytest.mark.parametrize("tracer", ["function", "function_graph", "function_profile"])
def test_undo_is_the_identity(tracer: str, tmp_path: Path) -> None:
    for guard in GUARDS:
        program, patched = _built(tmp_path, Form(guard=guard)), tmp_path / "patched"
        words = ("--tracer", tracer, "--libcalls", "-o", patched, "--force")
        done = ftpatch("enable", program, *words)
        assert not done.code, done.err
        number = len(CALLS) + (len(OTHERS) if tracer == "function" else 0)
        also = " as well" if guard == "padded" else ""
        assert f"{number} imported functions traced{also}\n" in done.out
        assert _run(patched, FTPATCH_TRACE="") == _run(program)
        for verb in ("enable", "trace"):
            again = ("--tracer", tracer, "--libcalls")
            more = ("-o", tmp_path / "twice") if verb == "enable" else ()
            refused = ftpatch(verb, *again, *more, patched)
            assert "already has a tracer" in refused.err, refused
        assert ftpatch("undo", patched).code == 0
        assert patched.read_bytes() == program.read_bytes()


def test_a_report_of_the_patched_program_itself(tmp_path: Path) -> None:
    """Its PLT is no longer what it was; names are those of before."""
    program, patched = _built(tmp_path), tmp_path / "patched"
    words = ("--tracer", "function_graph", "--libcalls", "-q", "-o", patched)
    assert ftpatch("enable", program, *words, "-f", "*@plt").code == 0
    program.unlink()
    assert _run(patched, FTPATCH_TRACE=str(tmp_path / "kept"))[0] == STATUS
    assert _counted(_reported(tmp_path / "kept")) == CALLS


@pytest.mark.parametrize("form", OTHER_FORMS, ids=str)
def test_other_architectures(form: Form, tmp_path: Path) -> None:
    """Under qemu; the start files of force-bti and the loader of pac-plt need an old processor."""
    program, patched = _built(tmp_path, form, flags=NO_VFORK), tmp_path / "patched"
    cpu = "cortex-a57" if form.guard in ("bti", "pac") else "max"
    cpus = ("-cpu", cpu) if form.arch == "arm64" else ()
    emulator = (*emulator_of(form.arch), *cpus)
    plain = _run(*emulator, program)
    assert plain[0] == STATUS
    calls, others = CALLS + Counter(fork=1), OTHERS - Counter(vfork=1)
    for tracer, expected in (("function_graph", calls), ("function", calls + others)):
        words = ("--tracer", tracer, "--libcalls", "-q", "-o", patched, "--force")
        assert ftpatch("enable", program, *words).code == 0
        kept = tmp_path / f"{tracer}.kept"
        assert _run(*emulator, patched, FTPATCH_TRACE=str(kept)) == plain
        assert _counted(_reported(kept)) == expected, tracer
        assert ftpatch("undo", patched).code == 0
        assert patched.read_bytes() == program.read_bytes()


def test_the_graph_has_both(tmp_path: Path) -> None:
    """Functions of the program, called by what it calls."""
    program = _built(tmp_path, Form(guard="padded", level="O0"))
    _, entries = _trace(program)
    rows = [(one["depth"], one["function"]) for one in entries]
    at = rows.index((1, "qsort@plt"))
    assert rows[at : at + 4] == [(1, "qsort@plt"), (2, "compare"), (3, "abs@plt"), (3, "abs@plt")]
    assert rows[0] == (0, "main")
    assert (1, "tail") in rows and (2, "strtol@plt") in rows
    assert (0, "thread") in rows and (1, "strdup@plt") in rows


def test_arguments_and_results(tmp_path: Path) -> None:
    program = _built(tmp_path)
    ended, _ = _trace(program, "--args")
    assert ended == _run(program)
    words = ("--libcalls", "--args", "-f", "strlen", "-f", "strtol@plt", "--format", "json")
    said = ftpatch_process("trace", *words, str(program)).out
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    lengths = [one for one in events if one["function"] == "strlen@plt"]
    assert sorted({one["function"] for one in events}) == ["strlen@plt", "strtol@plt"]
    results = [one["value"] for one in lengths if one["event"] == "exit"]
    assert [int(str(one), 0) for one in results] == [6, 6, 6, len(str(program))]
    bases = [one["args"] for one in events if one["function"] == "strtol@plt" and "args" in one]
    assert [[int(str(word), 0) for word in one[1:3]] for one in bases] == [[0, 10]] * 2


def test_filters_take_either_name(tmp_path: Path) -> None:
    program = _built(tmp_path, Form(guard="padded", level="O0"))
    for options, names in (
        (("-f", "free"), {"free@plt"}),
        (("-f", "fre*@plt", "-f", "main"), {"free@plt", "main"}),
        (("-f", "!*@plt"), {"main", "compare", "tail", "thread", "last"}),
        (("-n", "*"), set()),
    ):
        if not names:
            refused = ftpatch("trace", "--libcalls", *options, program)
            assert "the filters select no site" in refused.err
            continue
        _, entries = _trace(program, *options)
        assert {one["function"] for one in entries} == names
    assert "'freee'" in ftpatch("trace", "--libcalls", "-f", "freee", program).err
    bare = _built(tmp_path)
    refused = ftpatch("trace", "--libcalls", "-f", "freee", bare)
    assert refused.err.endswith("filter 'freee' matches no function and no library call\n")


def test_what_cannot_be_traced_is_said(tmp_path: Path) -> None:
    program = _built(tmp_path)
    source, static, bare = tmp_path / "puts.c", tmp_path / "static", tmp_path / "bare"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("here"); }\n')
    subprocess.run(["gcc", "-static-pie", source, "-o", static], check=True)
    subprocess.run(["gcc", "-fno-plt", "-O2", source, "-o", bare], check=True)
    power10 = tmp_path / "power10"
    subprocess.run(
        ["powerpc64le-linux-gnu-gcc", "-mcpu=power10", source, "-o", power10], check=True
    )
    library = tmp_path / "library.so"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    for words, said in (
        (("trace", "--libcalls", static), "calls no libraries through a PLT"),
        (("trace", "--libcalls", bare), "calls no libraries through a PLT"),
        (("trace", "--libcalls", power10), "its PLT's entries are of an unknown form"),
        (("trace", "--libcalls", "--tracer", "nop", program), "does not work with the nop tracer"),
        (("enable", program, "--libcalls", "-o", bare), "--libcalls requires a tracer"),
        (("enable", tmp_path, "--tracer", "function", "--libcalls"), "not on a directory"),
        (("trace", program), "compile with"),
        (("enable", library, "--tracer", "function", "--libcalls"), "not a program"),
    ):
        refused = ftpatch(*words)
        assert refused.code and said in refused.err and refused.err.count("\n") == 1, refused


@pytest.mark.parametrize("form", LIBRARY_FORMS[:4:2], ids=str)
def test_beside_traced_libraries(form: LibraryForm, tmp_path: Path) -> None:
    """A call is an entry of the PLT, and in it the function of the library."""
    program = build_with_library(tmp_path, form)
    plain = _run(program)
    alone, both = trace_library(program), trace_library(program, "--libcalls")
    assert (both.code, both.out) == plain
    names = [name for _, name in both.calls]
    at = names.index("through@plt")
    assert both.calls[at + 1] == (both.calls[at][0] + 1, "through")
    assert [name for name in names if not name.endswith("@plt")] == [n for _, n in alone.calls]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_programs_do_the_same(name: str, binding: str, link: str, tmp_path: Path) -> None:
    """Those that jump out, throw, fork, end in every way, or check all registers."""
    level = "-O2" if binding == "lazy" else "-O0"
    form = ProgramForm("x86_64", link, level, more=(f"-Wl,-z,{binding}",))
    program = build_program(form, name, tmp_path)
    every = runs(name, "x86_64")
    assert not differences(program, every, RECORDING, options=("--libcalls",))
    assert not differences(program, every, RECORDING[:1], options=("--libcalls", "--args"))


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("name", [*QUICK, "registers.c", "ports.cpp"])
@pytest.mark.parametrize("arch", sorted(OWN | {"i386": GUARDS}))
def test_programs_of_others_do_the_same(arch: str, name: str, binding: str, tmp_path: Path) -> None:
    link, level = ("pie", "-O2") if binding == "lazy" else ("no-pie", "-O0")
    form = ProgramForm(arch, link, level, more=(f"-Wl,-z,{binding}",))
    program = build_program(form, name, tmp_path)
    options = ("--libcalls",)
    assert not differences(program, runs(name, arch), RECORDING, arch=arch, options=options)
    with_args = (*options, "--args")
    assert not differences(program, runs(name, arch), RECORDING[:1], arch=arch, options=with_args)


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("tracer", ["function_graph", "function"])
def test_unwinders_find_their_way_out_of_every_instruction(
    tracer: str, binding: str, tmp_path: Path
) -> None:
    program, patched = _built(tmp_path, Form(binding=binding), "steps.c"), tmp_path / "patched"
    plain = _run(program)
    words = ("--tracer", tracer, "--libcalls", "-q", "-o", patched, "-f", "labs")
    done = ftpatch("enable", program, *words)
    assert not done.code, done.err
    ended = _run(patched, FTPATCH_TRACE=str(tmp_path / "kept"))
    assert plain[0] == ended[0] == 0, (plain, ended)
    steps = [int(re.findall(r"(\d+) steps", said)[0]) for said in (plain[1], ended[1])]
    assert steps[1] > steps[0] + 50, "the tracer was not stepped through"


@pytest.mark.parametrize("binding", BINDINGS)
def test_branch_targets(binding: str, tmp_path: Path) -> None:
    """All code but that of the loader is guarded: no branch goes where no BTI is."""
    library = tmp_path / "libtimes.so"
    words = [f"{PREFIX}-gcc", "-O1", "-march=armv8.5-a", "-nostdlib"]
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]}")
    guard = ("-mbranch-protection=bti", "-Wl,-z,force-bti")
    times = [*words, "-shared", "-fPIC", str(SOURCES / "times.c"), "-o", str(library)]
    subprocess.run([*times, *guard], check=True)
    program, patched = tmp_path / "program", tmp_path / "patched"
    how = ("-no-pie", "-fno-pie", f"-Wl,-z,{binding}", "-Wl,-rpath,$ORIGIN")
    source = SOURCES / "guarded_imports.c"
    subprocess.run([*words, *guard, *how, source, library, "-o", program], check=True)
    emulator = (*runner("arm64"), "-L", f"/usr/{PREFIX}", "-cpu", "max")
    assert _run(*emulator, program) == (54, "")
    for tracer in ("function_graph", "function"):
        done = ftpatch(
            "enable", program, "--tracer", tracer, "--libcalls", "-o", patched, "--force"
        )
        assert not done.code, done.err
        kept = tmp_path / f"{tracer}.kept"
        assert _run(*emulator, patched, FTPATCH_TRACE=str(kept)) == (54, "")
        assert _counted(_reported(kept)) == Counter(times=3)
    unguarded = [*times, "-mbranch-protection=none", "-Wl,-z,force-bti"]
    subprocess.run(unguarded, check=True, stderr=subprocess.DEVNULL)
    assert _run(*emulator, program)[0] not in (0, 54)  # it is checked
