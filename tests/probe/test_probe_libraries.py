# SPDX-License-Identifier: MIT
"""Libraries of a program in a file, probed in copies beside it: what gdb and processes count, what
readelf and the dynamic linker say of the files, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.sampling import scaled

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
INNER = """
#include <stdlib.h>
int shared = 5;
static int begun;
__attribute__((noinline)) int inner(int n) { shared += n; return shared; }
int which(void) { return 2; }
__attribute__((noinline)) int flagged(int n) {
    int same;
    __asm__(
        "cmpl $3, %1; .globl flagged_at; flagged_at: .nops 5; movl $1, %0; je 1f; movl $0, %0; 1:"
        : "=&r"(same) : "r"(n) : "cc");
    return same;
}
__attribute__((constructor)) static void begin(void) { begun = inner(flagged(4)); }
"""
OUTER = """
#include <stdlib.h>
#include <string.h>
int inner(int n), flagged(int n);
int which(void) { return 1; }
int outer(const char *name, int n) {
    char *volatile copy = strdup(name); /* libc's own call of malloc */
    int sum = 0;
    for (int i = 0; i < n; i++) sum += inner(copy[0]);
    free(copy);
    return sum + 100 * flagged(n);
}
int chosen(int by, int n) {
    static void *const ways[] = {&&more, &&less, &&same};
    goto *ways[by];
more:
    return n + 1;
less:
    return n - 1;
same:
    return n;
}
"""
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int outer(const char *name, int n), chosen(int by, int n), which(void);
static void *worker(void *at) {
    for (int i = 0; i < 100; i++) {
        void *volatile held = malloc((long)at + i);
        free(held);
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t all[3];
    int status, sum = 0;
    for (int i = 1; i < argc; i++) sum += outer(argv[i], i);
    for (int i = 0; i < 9; i++) sum += chosen(i % 3, i);
    for (long i = 0; i < 3; i++) pthread_create(&all[i], 0, worker, (void *)(i + 5000));
    for (int i = 0; i < 3; i++) pthread_join(all[i], 0);
    pid_t child = fork();
    if (!child) exit(outer("child", 4) & 63);
    waitpid(child, &status, 0);
    printf("%d %d %d\n", sum, WEXITSTATUS(status), which());
    return 7;
}
"""
ARGUMENTS = ("one", "two", "three")


@dataclass(frozen=True)
class Built:
    """A ``program`` in a ``folder``, which prints ``said`` and ends with 7. It is linked with
    libouter.so, and only that with libinner.so."""

    folder: Path
    program: Path
    said: str

    def run(self, program: Path, trace: Path | None = None) -> None:
        """Run it or what was made of it, and assert that it does what it does."""
        env = {**os.environ, "FTPATCH_TRACE": str(trace or self.folder / "unread")}
        done = subprocess.run(
            [program, *ARGUMENTS], env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (7, self.said, "")

    def probed(self, *words: str) -> Path:
        """Probe it."""
        out = self.folder / "probed"
        done = ftpatch("probe", self.program, *words, "-o", out)
        assert done.code == 0, done.err
        return out

    def counts(self, *words: str) -> tuple[dict[str, int], Path]:
        """Probe it and run it; return the hits in the first process, and the trace."""
        trace = self.folder / "t"
        self.run(self.probed(*words), trace)
        return hits(trace)[0], trace


def hits(trace: Path) -> tuple[dict[str, int], dict[str, list[dict[str, Any]]]]:
    """How often each probe was hit in one process, and what its hits recorded."""
    said = ftpatch("report", trace, "--no-children", "--format", "json")
    assert said.code == 0, said.err
    rows = dict[str, list[dict[str, Any]]]()
    for one in said.json:
        if "values" in one:
            rows.setdefault(one["probe"], []).append(one["values"])
    return {name: len(those) for name, those in rows.items()}, rows


@pytest.fixture(params=["named"])
def built(tmp_path: Path, request: pytest.FixtureRequest) -> Built:
    """The libraries have names of their own (DT_SONAME), or only those of their files."""
    for name, text in (("inner", INNER), ("outer", OUTER), ("prog", PROGRAM)):
        (tmp_path / f"{name}.c").write_text(text)
    own = "-Wl,-rpath,$ORIGIN"
    for name, *others in (("inner",), ("outer", "-L.", "-linner", own)):
        soname = [f"-Wl,-soname,lib{name}.so"] if request.param == "named" else []
        shared = ["gcc", "-O1", "-g", "-shared", "-fPIC", f"{name}.c", "-o", f"lib{name}.so"]
        subprocess.run([*shared, *others, *soname], check=True, cwd=tmp_path)
    linked = ["gcc", "-O1", "-g", "prog.c", "-o", "prog", "-L.", "-louter", "-pthread", own]
    subprocess.run([*linked, "-Wl,-rpath-link,."], check=True, cwd=tmp_path)
    program = tmp_path / "prog"
    plain = subprocess.run([program, *ARGUMENTS], capture_output=True, text=True, check=False)
    assert plain.returncode == 7
    return Built(tmp_path, program, plain.stdout)


def _counted_by_gdb(built: Built, *functions: str) -> list[int]:
    """How often each breakpoint is reached from main() on."""
    words = ["gdb", "-nx", "-batch", "-ex", "break main", "-ex", "run"]
    for number, name in enumerate(functions, 2):
        words += ["-ex", f"break *{name}", "-ex", f"ignore {number} 1000000"]
    words += ["-ex", "continue", "-ex", "info breakpoints", "--args", str(built.program)]
    done = subprocess.run([*words, *ARGUMENTS], capture_output=True, text=True, check=True)
    told = done.stdout.split("Num ")[1]
    return [int(number) for number in re.findall(r"already hit (\d+) times?", told)][1:]


@pytest.mark.parametrize("built", ["named", "unnamed"], indirect=True)
def test_gdb_counts_the_same(built: Built) -> None:
    probes = ("p:outer libouter.so:outer", "p:inner libinner.so:inner", "p:alloc libc.so.6:malloc")
    found, _ = built.counts(*probes)
    assert [found["outer"], found["inner"], found["alloc"]] == _counted_by_gdb(
        built, "outer", "inner", "malloc"
    )


def test_a_process_counts_the_same(built: Built) -> None:
    probes = ("p:outer libouter.so:outer", "r:dup libc.so.6:strdup", "p:alloc libc.so.6:malloc")
    found, _ = built.counts(*probes)
    command = " ".join([str(built.program), *ARGUMENTS])
    other = built.folder / "c"
    done = ftpatch("probe", "-c", command, *probes, "-q", "-o", other)
    assert done.code == 7
    assert found == hits(other)[0]


def test_values(built: Built) -> None:
    found, trace = built.counts(
        "p:outer libouter.so:outer name=$arg1:string n=$arg2:s32",
        "r:inner libinner.so:inner ret=$retval:s32 held=@shared:s32",
        "p:odd libinner.so:inner n=$arg1:s32 if n == 'o'".replace("'o'", str(ord("o"))),
        "p:start main argc=$arg1:s32",
    )
    _, rows = hits(trace)
    assert [(one["name"], one["n"]) for one in rows["outer"]] == [
        *zip(ARGUMENTS, (1, 2, 3), strict=True)
    ]
    assert [one["argc"] for one in rows["start"]] == [len(ARGUMENTS) + 1]
    sums, at = list[int](), 5
    for number, name in enumerate(ARGUMENTS, 1):
        for _ in range(number):
            at += ord(name[0])
            sums.append(at)
    assert [one["ret"] for one in rows["inner"]] == sums
    assert [one["held"] for one in rows["inner"]] == sums
    assert found["odd"] == 1


def test_a_child_has_a_trace_of_its_own(built: Built) -> None:
    _, trace = built.counts("p:inner libinner.so:inner", "p:size libc.so.6:malloc hist:keys=$tid")
    (child,) = trace.parent.glob("t.*")
    assert hits(child)[0]["inner"] == 4
    report = ftpatch("report", trace)
    assert report.out.count("event histogram: size") == 2


def test_traps_of_the_program(built: Built) -> None:
    """The runtime then redirects system calls in the copies, too."""
    found, _ = built.counts(
        "p:start main", "p:* libc.so.6:sig*", "p:inner libinner.so:inner", "--no-optimize"
    )
    assert (found["start"], found["inner"]) == (1, 6)


def test_flags_in_the_middle_of_a_function(built: Built) -> None:
    """They are kept where a probe records, and before, where it does not: in the constructor."""
    library = built.folder / "libinner.so"
    told = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    start, at = (
        int(re.findall(rf"^(\w+) \w {name}$", told, re.MULTILINE)[0], 16)
        for name in ("flagged", "flagged_at")
    )
    found, _ = built.counts(f"p:mid libinner.so:flagged+{at - start}")
    assert found == {"mid": 3}


def test_a_function_that_has_no_room_for_a_jump(built: Built) -> None:
    out = built.folder / "probed"
    done = ftpatch("probe", built.program, "p:one libouter.so:chosen", "-o", out, "--json")
    assert json.loads(done.out)["way"] == "pun", done.err
    built.run(out, built.folder / "t")
    assert hits(built.folder / "t")[0] == {"one": 9}


@pytest.mark.scaled
def test_most_of_libc(built: Built) -> None:
    glob = ("*", "[lm]*")[scaled(0, 1)]
    found, _ = built.counts(f"p:* libc.so.6:{glob}", "r:* libouter.so:*", "--limit", "0")
    assert sum(found.values()) > 100
    assert (found["outer"], found["chosen"]) == (3, 9)
    assert found["malloc"] == _counted_by_gdb(built, "malloc")[0]


@pytest.mark.parametrize("built", ["named", "unnamed"], indirect=True)
def test_files(built: Built) -> None:
    """The originals are what they were; readelf finds nothing wrong; undo gives them back."""
    before = {path: path.read_bytes() for path in built.folder.glob("*.so")}
    out = built.probed("p libouter.so:outer", "p libinner.so:inner", "p main")
    folder = out.with_name("probed.libs")
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in folder.iterdir()) == ["libinner.so", "libouter.so"]
    listed = subprocess.run(["ldd", out], capture_output=True, text=True, check=True).stdout
    assert str(folder / "libouter.so") in listed and str(folder / "libinner.so") in listed
    assert f"{built.folder}/lib" not in listed
    for path in (out, *folder.iterdir()):
        said = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True)
        assert not said.stderr
        loads = [line.split() for line in said.stdout.splitlines() if line.startswith("  LOAD")]
        starts = [int(words[2], 16) for words in loads]
        assert starts == sorted(starts)
        assert not any("W" in words[6] and "E" in words[6:] for words in loads)
        original = built.program if path == out else built.folder / path.name
        assert ftpatch("undo", path).code == 0
        assert path.read_bytes() == original.read_bytes()
    built.run(out)


def test_status_tells_the_probes(built: Built) -> None:
    out = built.probed("p:outer libouter.so:outer n=$arg2", "p:start main")
    assert ftpatch("probe", out).out.splitlines() == [
        "p:probes/start main",
        "p:probes/outer libouter.so:outer n=$arg2",
    ]
    assert "has 2 probes" in ftpatch("status", out).out
    again = ftpatch("probe", out, "p libouter.so:outer", "-o", built.folder / "again")
    assert again.code == 2 and "probes of libraries" in again.err and "ftpatch undo" in again.err


def test_copies_go_with_the_program(built: Built) -> None:
    out = built.probed("p:inner libinner.so:inner")
    away = built.folder / "away"
    away.mkdir()
    moved = out.rename(away / "other")
    out.with_name("probed.libs").rename(away / "probed.libs")
    env = os.environ | {"LD_LIBRARY_PATH": str(built.folder), "FTPATCH_TRACE": str(away / "t")}
    done = subprocess.run([moved, *ARGUMENTS], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, built.said), done.stderr
    assert hits(away / "t")[0] == {"inner": 6}


def test_a_copy_of_another_command_is_not_taken(built: Built) -> None:
    """Its places have other numbers: nothing is recorded, and the program runs."""
    built.probed("p:start main", "p:inner libinner.so:inner")
    other = (built.folder / "probed.libs" / "libinner.so").read_bytes()
    (built.folder / "probed").unlink()
    (built.folder / "probed.libs" / "libinner.so").unlink()
    out = built.probed("p:inner libinner.so:inner")
    (built.folder / "probed.libs" / "libinner.so").write_bytes(other)
    built.run(out, built.folder / "t")
    assert hits(built.folder / "t")[0] == {}


def test_in_place(built: Built) -> None:
    before = built.program.read_bytes()
    done = ftpatch("probe", built.program, "p:inner libinner.so:inner", "--in-place")
    assert done.code == 0, done.err
    built.run(built.program, built.folder / "t")
    assert hits(built.folder / "t")[0] == {"inner": 6}
    assert ftpatch("undo", built.program).code == 0
    assert built.program.read_bytes() == before


REFUSED = {
    "p libnone.so:work": "it loads no library 'libnone.so'; ",
    "p libinner.so:inter": "no such function 'inter'; did you mean inner",
    "p libinner.so:nothing*": "no function matches 'nothing*'",
    "p ld-linux-x86-64.so.2:_dl_catch_error": "the dynamic linker cannot be a copy; ",
    "p libc.so.6:strlen": "it only chooses the function's implementation (IFUNC); ",
    "r libc.so.6:swapcontext": "keeps its return address in memory of the program; ",
    "r libc.so.6:setjmp": "",
    "p libinner.so:": "invalid probed address or symbol",
    "p libinner.so:inner+0x999": "inner has ",
}


@pytest.mark.parametrize("probe", REFUSED)
def test_refused(built: Built, probe: str) -> None:
    before = {*built.folder.iterdir()}
    done = ftpatch("probe", built.program, "p main", probe, "-o", built.folder / "out")
    assert done.code == 2 and done.err.count("\n") == 1 and REFUSED[probe] in done.err
    assert {*built.folder.iterdir()} == before
    kept = ftpatch(
        "probe", built.program, "p main", probe, "-o", built.folder / "out", "--keep-going"
    )
    assert kept.code in (1, 2) and "Traceback" not in kept.err
    assert (built.folder / "out").exists() == (kept.code == 1)


def test_nothing_is_half_written(built: Built) -> None:
    out, folder = built.folder / "out", built.folder / "out.libs"
    words = ("probe", built.program, "p libinner.so:inner", "-o", out)
    assert ftpatch(*words, "--dry-run").code == 0 and not folder.exists()
    folder.write_text("")
    done = ftpatch(*words)
    assert done.code == 2 and "not a directory" in done.err and not out.exists()
    folder.unlink()
    folder.mkdir()
    (folder / "libinner.so").write_text("mine")
    done = ftpatch(*words)
    assert done.code == 2 and "the output exists" in done.err and not out.exists()
    assert (folder / "libinner.so").read_text() == "mine"
    assert ftpatch(*words, "--force").code == 0
    built.run(out)
    for name in ("out", "out.libs/libinner.so"):
        (built.folder / name).unlink()
    out.mkdir()
    done = ftpatch(*words)
    assert done.code == 2 and not [*folder.iterdir()]


def test_programs_that_cannot_load_copies(tmp_path: Path) -> None:
    (tmp_path / "s.c").write_text('int main(void) { __builtin_puts("x"); return 0; }')
    for name, *words in (("static", "gcc", "-static"), ("musl", "musl-gcc")):
        subprocess.run([*words, "s.c", "-o", name], check=True, cwd=tmp_path)
        done = ftpatch("probe", tmp_path / name, "p libc.so.6:puts", "-o", tmp_path / "out")
        reason = "statically linked" if name == "static" else "its dynamic linker is not glibc's"
        assert done.code == 2 and done.err.count("\n") == 1 and reason in done.err
    assert not (tmp_path / "out").exists()


def test_cut_libraries(built: Built) -> None:
    library = built.folder / "libinner.so"
    whole = library.read_bytes()
    for size in (0, 60, 4000, len(whole) - 500):
        library.write_bytes(whole[:size])
        done = ftpatch("probe", built.program, "p libinner.so:inner", "-o", built.folder / "out")
        assert done.code == 2 and done.err.count("\n") == 1 and done.err.startswith("ftpatch: ")
        assert not (built.folder / "out").exists() and not (built.folder / "out.libs").exists()


def test_symbols_are_looked_up_in_the_same_order(built: Built) -> None:
    """Both libraries have which(): the outer one comes first, and it prints so."""
    assert built.said.endswith(" 1\n")
    built.counts("p:inner libinner.so:which", "p:libc libc.so.6:malloc")


def test_an_exception_passes_through_a_probed_library(tmp_path: Path) -> None:
    (tmp_path / "t.cc").write_text("""
        #include <cstdio>
        #include <cstdlib>
        static int throwing(const void *, const void *) { throw 5; }
        int main() {
            int two[] = {2, 1};
            try { qsort(two, 2, sizeof(int), throwing); } catch (int n) { std::printf("%d\\n", n); }
        }
    """)
    subprocess.run(["g++", "-O1", "t.cc", "-o", "t"], check=True, cwd=tmp_path)
    probes = (
        "r:sort libc.so.6:qsort",
        "p:thrown libstdc++.so.6:__cxa_throw",
        "p:in libc.so.6:qsort",
    )
    done = ftpatch("probe", tmp_path / "t", *probes, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    env = os.environ | {"FTPATCH_TRACE": str(tmp_path / "trace")}
    ran = subprocess.run([tmp_path / "out"], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout == "5\n"
    assert hits(tmp_path / "trace")[0] == {"thrown": 1, "in": 1}


def test_within_across_images(built: Built) -> None:
    """A call of one library, or of the program, may be around hits in another; what has the same
    address in both is not mixed up."""
    counts, _ = built.counts(
        "r:sold libouter.so:outer",
        "r:work worker",
        "p:inside libinner.so:inner if within(libouter.so:outer)",
        "p:outside libinner.so:inner if !within(libouter.so:outer)",
        "p:copied libc.so.6:malloc if within(libouter.so:outer)",
        "p:worked libc.so.6:malloc if within(worker)",
    )
    calls = len(ARGUMENTS)
    expected = {"sold": calls, "work": 3, "copied": calls, "worked": 3 * 100}
    assert counts == expected | {"inside": sum(range(calls + 1))}
    words = ["r:sold libouter.so:outer", "p:x chosen if within(libinner.so:outer)"]
    done = ftpatch("probe", built.program, *words, "-o", built.folder / "none")
    assert done.code == 2 and "within(libinner.so:outer)" in done.err, done
    assert not (built.folder / "none").exists()


@pytest.mark.parametrize("place", ["a$LIB", "with$LIB/a"])
def test_names_that_the_dynamic_linker_expands(built: Built, place: str) -> None:
    out = built.folder / place
    out.parent.mkdir(exist_ok=True)
    done = ftpatch("probe", built.program, "p libc.so.6:malloc", "-o", out)
    assert done.code == 2 and "the dynamic linker would replace `$`" in done.err, done
    assert list(out.parent.glob("a*")) == []
