# SPDX-License-Identifier: MIT
"""``ftpatch trace --lib``: which libraries a program has, and whether it finds their copies."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_process
from tests.support.library_programs import PAD, build, compiled, plain, trace

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
OLD = "-Wl,--disable-new-dtags"
"""DT_RPATH in place of DT_RUNPATH."""


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _chain(folder: Path, *rpath: str, pads: bool = True) -> Path:
    """A program of its library liba, found by RUNPATH, which needs libb in another folder."""
    flags = ("-shared", "-fPIC")
    inner = _write(folder, "b.c", "int b(int n) { return n * 3; }\n")
    outer = _write(folder, "a.c", "int b(int); int a(int n) { int m = b(n); return m + 1; }\n")
    main = _write(folder, "m.c", "int a(int); int main(void) { return a(4); }\n")
    library = compiled(folder, inner, "dep/libb.so", *flags, PAD, "-Wl,-soname,libb.so")
    own = [PAD] if pads else []
    words = [*flags, *own, "-Wl,-soname,liba.so", str(library), *rpath]
    first = compiled(folder, outer, "sub/liba.so", *words)
    search = ("-Wl,-rpath,$ORIGIN/sub", f"-Wl,-rpath-link,{folder / 'dep'}")
    return compiled(folder, main, "prog", PAD, str(first), *search)


BOTH = [(0, "main"), (1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "rpath",
    [("-Wl,-rpath,$ORIGIN",), (OLD, "-Wl,-rpath,$ORIGIN"), (OLD, "-Wl,-rpath,${ORIGIN}/."), ()],
    ids=["runpath", "rpath", "braces", "variable"],
)
def test_wherever_the_program_finds_it(rpath: tuple[str, ...], tmp_path: Path) -> None:
    program = build(tmp_path, rpath=rpath)
    env = {} if rpath else {"LD_LIBRARY_PATH": str(tmp_path)}
    traced = trace(program, env=env)
    assert traced.code == 7 and not traced.err
    assert "through" in {name for _, name in traced.calls}


def test_a_program_whose_folder_cannot_be_written_to(tmp_path: Path) -> None:
    """$ORIGIN of its copy is where it was."""
    for old in ((), (OLD,)):
        program = build(tmp_path, rpath=(*old, "-Wl,-rpath,$ORIGIN"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.access", lambda where, _: Path(where) != tmp_path)
            result = ftpatch("trace", "--lib", "libshared*", program)
        assert result.code == 7 and "through() {" in result.out and not result.err


@pytest.mark.parametrize("old", [(), (OLD,)])
def test_origin_of_a_library(old: tuple[str, ...], tmp_path: Path) -> None:
    program = _chain(tmp_path, *old, "-Wl,-rpath,$ORIGIN/../dep")
    assert plain(program)[0] == 13
    for lib, names in (("lib[ab].so", BOTH), ("liba.so", BOTH[:2])):
        traced = trace(program, lib=lib)
        assert (traced.code, traced.err, traced.calls) == (13, "", names)


def test_another_library_finds_it_first(tmp_path: Path) -> None:
    """What has a DT_RPATH and is not traced looks there, whatever the environment says."""
    program = _chain(tmp_path, OLD, "-Wl,-rpath,$ORIGIN/../dep", pads=False)
    traced = trace(program, lib="libb*")
    assert traced.code == 13 and traced.calls == BOTH[:1]
    assert traced.err.count("\n") == 1 and "libb.so: not traced: " in traced.err
    assert "uses the original: a DT_RPATH precedes LD_LIBRARY_PATH" in traced.err
    traced = trace(_chain(tmp_path, "-Wl,-rpath,$ORIGIN/../dep", pads=False), lib="libb*")
    assert (traced.code, traced.err, traced.calls) == (13, "", [(0, "main"), (1, "b")])


def test_what_the_programs_rpath_finds_for_its_libraries(tmp_path: Path) -> None:
    """A DT_RPATH holds for libraries of libraries, too."""
    _chain(tmp_path)
    link = f"-Wl,-rpath-link,{tmp_path / 'dep'}"
    search = (OLD, "-Wl,-rpath,$ORIGIN/sub:$ORIGIN/dep", link)
    first = str(tmp_path / "sub/liba.so")
    program = compiled(tmp_path, tmp_path / "m.c", "prog", PAD, first, *search)
    for lib, names in (("lib[ab].so", BOTH), ("libb.so", [(0, "main"), (1, "b")])):
        traced = trace(program, lib=lib)
        assert (traced.code, traced.err, traced.calls) == (13, "", names)


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    program = build(tmp_path)
    for name in ("a b", "a:b", "a;b", "$ORIGIN"):
        folder = tmp_path / name
        folder.mkdir()
        env = {"TMPDIR": str(folder)}
        if name == "a b":
            assert trace(program, env=env).calls
            continue
        result = ftpatch_process("trace", "--lib", "libshared*", program, env=env)
        assert result.code == 125 and "set TMPDIR to another directory" in result.err
        assert result.err.count("\n") == 1 and not list(folder.iterdir())


def test_libraries_that_are_needed_by_a_path(tmp_path: Path) -> None:
    flags = ("-shared", "-fPIC", PAD)
    inner = _write(tmp_path, "b.c", "int b(int n) { return n * 3; }\n")
    outer = _write(tmp_path, "a.c", "int b(int); int a(int n) { int m = b(n); return m + 1; }\n")
    main = _write(tmp_path, "m.c", "int a(int); int main(void) { return a(4); }\n")
    first = compiled(tmp_path, inner, "one/lib.so", *flags)
    second = compiled(tmp_path, outer, "two/lib.so", *flags, str(first))
    program = compiled(tmp_path, main, "prog", PAD, str(second))
    traced = trace(program, lib="lib.so")
    assert (traced.code, traced.err, traced.calls) == (13, "", BOTH)


def test_a_library_with_two_names(tmp_path: Path) -> None:
    """Without a soname it is what it was linked as: two that need it may call it differently."""
    flags = ("-shared", "-fPIC", PAD)
    inner = _write(tmp_path, "b.c", "int calls; int b(int n) { return n * 3 + calls++; }\n")
    outer = _write(tmp_path, "a.c", "int b(int); int a(int n) { int m = b(n); return m + 1; }\n")
    text = "int a(int), b(int); int main(void) { int n = b(0); return a(4) + n; }\n"
    main = _write(tmp_path, "m.c", text)
    library = compiled(tmp_path, inner, "libb.so.1", *flags)
    (tmp_path / "libb.so").symlink_to("libb.so.1")
    first = compiled(tmp_path, outer, "liba.so", *flags[:2], "-L.", "-l:libb.so")
    words = ("-L.", "-l:libb.so.1", str(first), "-Wl,-rpath,$ORIGIN", "-Wl,-rpath-link,.")
    program = compiled(tmp_path, main, "prog", PAD, *words)
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    traced = trace(program, lib=library.name, env=env)
    assert (traced.code, traced.err) == (14, "")
    assert traced.calls == [(0, "main"), (1, "b"), (1, "b")]


def test_a_library_that_is_preloaded(tmp_path: Path) -> None:
    flags = ("-shared", "-fPIC", PAD)
    library = compiled(
        tmp_path, _write(tmp_path, "b.c", "int getpid(void) { return 5; }\n"), "pre.so", *flags
    )
    main = _write(tmp_path, "m.c", "int getpid(void); int main(void) { return getpid(); }\n")
    program = compiled(tmp_path, main, "prog", PAD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        result = ftpatch("trace", "--lib", "pre.so", program)
    assert result.code == 5 and "getpid();" in result.out and not result.err


def test_other_verbs_on_a_copy(tmp_path: Path) -> None:
    """It is a library with a journal."""
    program = build(tmp_path)
    kept = tmp_path / "copy.so"

    def run(patched: Path, words: list[str], environment: dict[str, str], *_: object) -> int:
        shutil.copy(Path(environment["LD_LIBRARY_PATH"].split(":")[0], "libshared.so.1"), kept)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ftpatch.tracer.run.execute", run)
        ftpatch("trace", "--lib", "libshared*", program)
    assert ftpatch("status", kept).code == 0 and ftpatch("list", kept).code == 0
    assert ftpatch("diff", kept).code == 1 and ftpatch("check", kept).code in (0, 1)
    again = ftpatch("enable", kept, "--tracer", "function", "-o", tmp_path / "more")
    assert again.code == 2 and "already has a tracer" in again.err
    assert ftpatch("undo", kept).code == 0
    assert kept.read_bytes() == (tmp_path / "libshared.so.1").read_bytes()


def test_what_other_programs_make_of_a_copy(tmp_path: Path) -> None:
    """A child that has the library, but no tracer, runs as ever."""
    program = build(tmp_path)
    child = program.rename(tmp_path / "child")
    main = _write(
        tmp_path,
        "parent.c",
        '#include <stdlib.h>\nint leaf(int); int main(void) { return leaf(system("'
        f'{child}") >> 8); }}\n',
    )
    library = str(tmp_path / "libshared.so.1")
    parent = compiled(tmp_path, main, "parent", PAD, library, "-Wl,-rpath,$ORIGIN")
    expected = plain(child)
    traced = trace(parent)
    assert (traced.code, traced.out, traced.err) == (8, expected[1], "")
    calls = [(0, "begin"), (1, "leaf"), (0, "main"), (1, "leaf"), (0, "end"), (1, "leaf")]
    assert traced.calls == calls


def test_no_shadow_stack_is_asked_for(tmp_path: Path) -> None:
    cet = " -fcf-protection=full -Wl,-z,shstk,-z,ibt"
    program = build(tmp_path, sites=(PAD + cet, PAD + cet))
    notes = []

    def run(patched: Path, words: list[str], environment: dict[str, str], *_: object) -> int:
        copy = Path(environment["LD_LIBRARY_PATH"].split(":")[0], "libshared.so.1")
        for path in (copy, program.with_name("libshared.so.1")):
            words = ["readelf", "-n", str(path)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            notes.append(done.stdout)
        return 0

    for tracer, kept in (("function_graph", False), ("function", True)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ftpatch.tracer.run.execute", run)
            ftpatch("trace", "--lib", "libshared*", "--tracer", tracer, program)
        assert ("SHSTK" in notes[-2]) == kept and "SHSTK" in notes[-1] and "IBT" in notes[-2]
    assert trace(program).code == 7


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--lib", "libnone*"], "no library matches --lib 'libnone*'; it has libshared.so.1, libc"),
        (["--lib", "libc.so.6"], "libc.so.6: no __mcount_loc and no __patchable_function_entries"),
        (["--lib", "libshared*", "--lib", "libc.*"], "compile with -fpatchable-function-entry=5"),
        (["--lib", "libshared*", "-f", "nosuch"], "filter 'nosuch' matches no site"),
        (["--lib", "libshared*", "-n", "*"], "the filters select no site"),
        (
            ["--lib", "libshared*", "--tracer", "./own.elf"],
            "--lib does not work with a tracer of your own",
        ),
        (["--lib", "libshared*", "--tracer", "nop"], "use function, function_graph, function_pro"),
    ],
)
def test_failures_of_our_own(words: list[str], reason: str, tmp_path: Path) -> None:
    program = build(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    result = ftpatch_process("trace", *words, program)
    assert result.code == 125 and reason in result.err and not result.out
    assert result.err.count("\n") == 1, result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_all_that_have_sites(tmp_path: Path) -> None:
    program = build(tmp_path, suffix="cpp")
    traced = trace(program, lib="*")
    assert traced.code == 41 and "not traced" not in traced.err
    main = _write(tmp_path, "m.c", "int main(void) { return 3; }\n")
    bare = compiled(tmp_path, main, "bare", PAD, "-Wl,--no-as-needed", "-lm")
    result = ftpatch_process("trace", "--lib", "*", bare)
    assert result.code == 125 and "none of the 2 libraries that match --lib '*'" in result.err


def test_programs_without_libraries(tmp_path: Path) -> None:
    main = _write(tmp_path, "m.c", "int main(void) { return 3; }\n")
    for flags in (("-static",), ("-static-pie",)):
        program = compiled(tmp_path, main, "prog", PAD, *flags)
        result = ftpatch_process("trace", "--lib", "*", program)
        assert result.code == 125 and "no shared libraries; remove --lib" in result.err
    linker = "-Wl,--dynamic-linker=/nowhere/ld.so"
    program = compiled(tmp_path, main, "prog", PAD, linker)
    result = ftpatch_process("trace", "--lib", "*", program)
    assert result.code == 125 and "cannot run its dynamic linker /nowhere/ld.so: No " in result.err
    build(tmp_path)
    (tmp_path / "libshared.so.1").unlink()
    result = ftpatch_process("trace", "--lib", "*", tmp_path / "prog")
    assert result.code == 125 and result.err.count("\n") == 1


def test_more_libraries_than_a_trace_has_room_for(tmp_path: Path) -> None:
    """The rest runs as ever, and is named."""
    count, flags = 40, []
    for number in range(count):
        source = _write(tmp_path, "one.c", f"int one{number}(void) {{ return {number}; }}\n")
        name = f"libone{number}.so"
        soname = f"-Wl,-soname,{name}"
        flags.append(str(compiled(tmp_path, source, name, "-shared", "-fPIC", PAD, soname)))
    calls = "".join(f"int one{n}(void); " for n in range(count))
    total = " + ".join(f"one{n}()" for n in range(count))
    main = _write(tmp_path, "m.c", f"{calls}int main(void) {{ return ({total}) & 127; }}\n")
    program = compiled(tmp_path, main, "prog", PAD, *flags, "-Wl,-rpath,$ORIGIN")
    traced = trace(program, lib="libone*")
    assert traced.code == sum(range(count)) & 127
    told = traced.err.splitlines()
    assert all("not traced: too many libraries for one trace" in s for s in told)
    assert len(told) + len(traced.calls) - 1 == count and 10 < len(traced.calls) < count
