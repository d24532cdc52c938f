# SPDX-License-Identifier: MIT
"""What a probe's words mean, and what is said of them: C++ names with pointers, paths of libraries,
places of output, limits, other users."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftpatch.errors import Refused, UsageError
from ftpatch.probe import parse_probe, parse_probes
from ftpatch.probe.event_names import Pattern
from ftpatch.probe.function_place import is_wild
from tests.support.busy import ours_in
from tests.support.command import child_env, ftpatch, ftpatch_as, ftpatch_command

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
NOBODY = 65534
CPP = r"""
#include <cstdio>
#define APART __attribute__((noipa))
namespace shop {
APART double part(int const *p, int n) { return *p + n / 4.0; }
APART double part(int const *p) { return *p; }
APART int add(const char *name, int **n) { return name[0] + **n; }
}
int main()
{
	int x = 2, *p = &x;
	std::printf("%g\n", shop::part(&x, 3) + shop::part(&x) + shop::add("x", &p));
}
"""
LIBRARY = """
static volatile int held;
__attribute__((noipa)) int inner(int n) { held += n; held++; return n + 1; }
int plug(int n) { volatile int room[9]; room[n] = n; return inner(room[n]) + 1; }
"""
USES = """
#include <stdio.h>
int plug(int n);
int main(void) { for (int i = 0; i < 4; i++) printf("%d\\n", plug(i)); return 0; }
"""
WAITS = """
#include <stdio.h>
__attribute__((noipa)) int one(int n) { return n + 1; }
int main(void) { puts("ready"); fflush(stdout); while (getchar() > 0) one(1); return 0; }
"""


def _built(folder: Path, source: str, *words: str, name: str = "prog", lang: str = "c") -> Path:
    path = folder / name
    compiler = "g++" if lang == "c++" else "gcc"
    arguments = [compiler, "-O1", "-g", "-x", lang, "-", "-x", "none", *words, "-o", str(path)]
    subprocess.run(arguments, input=source.encode(), check=True)
    return path


def _command(
    program: Path, *probes: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ftpatch_command("probe", *probes, "-c", program),
        env=child_env(),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "wild"),
    [
        ("shop::part(int const*, int)", False),
        ("shop::part(int const *)", False),
        ("f(char**, void*&&, std::vector<int*>*)", False),
        ("f(char * const, int)", False),
        ("shop::part(*)", True),
        ("shop::part(int, *)", True),
        ("shop::*(int const*)", True),
        ("shop::part(ch?r)", True),
        ("shop::pa*", True),
        ("mall*", True),
        ("operator()(int*)", False),
        ("f[ab](int*)", True),
    ],
)
def test_a_pointer_is_no_wildcard(text: str, wild: bool) -> None:
    assert is_wild(text) == wild
    found = parse_probe(f"p {text}", ["di"], arguments=6, pattern=Pattern.GLOB)
    assert bool(found.template) == wild


def test_functions_that_take_pointers(tmp_path: Path) -> None:
    program = _built(tmp_path, CPP, lang="c++")
    probes = (
        "r:of shop::part(int const*, int) ret=$retval if $retval > 2.5",
        "p:add shop::add(char const*, int**)",
    )
    done = _command(program, *probes, "p:part shop::part(int const *,int) n")
    assert done.returncode == 0, done.stderr
    assert "of: (main+" in done.stdout and "ret=2.75 " in done.stdout
    assert "add: (shop::add(char const*, int**)+0x0/" in done.stdout
    assert "part: (shop::part(int const*, int)+0x0/" in done.stdout and " n=3\n" in done.stdout
    for wrong in ("shop::part(int*, int)", "shop::part(int const*, char)"):
        done = _command(program, f"p:x {wrong}")
        assert done.returncode == 125 and f"no such function {wrong!r}" in done.stderr


def test_a_library_by_a_relative_path(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    library = _built(
        tmp_path / "lib", LIBRARY, "-shared", "-fpic", "-Wl,-soname,libplug.so", name="libplug.so"
    )
    program = _built(tmp_path, USES, str(library), f"-Wl,-rpath,{library.parent}")
    (tmp_path / "link").symlink_to("lib")
    for name in ("lib/libplug.so", "./lib/../lib/libplug.so", "link/libplug.so", str(library)):
        probes = (f"p:in {name}:inner n=$arg1:s32 if within({name}:plug)", "r libplug.so:plug")
        done = _command(program, *probes, cwd=tmp_path)
        assert done.returncode == 0 and done.stdout.count(" in: (") == 4, done.stderr
    for name in ("lib/none.so", "plug/libplug.so", "./libplug.so"):
        done = _command(program, f"p {name}:inner", cwd=tmp_path)
        assert done.returncode == 125 and f"no library {name!r} is loaded" in done.stderr
    words = ftpatch_command("probe", program, "p lib/libplug.so:inner", "-o", "out")
    code = subprocess.run(words, cwd=tmp_path, env=child_env(), check=False).returncode
    assert code == 0 and (tmp_path / "out.libs/libplug.so").exists()


def test_a_wildcard_on_the_dynamic_linker_is_named(tmp_path: Path) -> None:
    program = _built(tmp_path, USES.replace("plug(i)", "i"))
    linker = "ld-linux-x86-64.so.2"
    done = ftpatch("probe", program, f"p {linker}:_dl*", "-o", tmp_path / "out")
    assert done.code == 2
    assert f": {linker}:_dl*: the dynamic linker cannot be a copy; use `ftp" in done.err


PLACES = {
    "there": "there: the output exists; use --force to overwrite it",
    "nowhere/out": "nowhere/out: cannot write: No such file or directory",
    "folder": "folder: the output is a directory; name a file in it",
    "there/out": "there/out: cannot write: Not a directory",
    "blocked": "blocked.libs: not a directory, and libraries go there; use another output",
    "leads": "leads.libs: not a directory, and libraries go there; use another output",
    "has": "has.libs/libc.so.6: the output exists; use --force to overwrite it",
    "o$x": "o$x.libs: the dynamic linker would replace `$`; use another output",
    "prog": "prog: the output is the input; use --in-place",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_dry_run_refuses_what_writing_would(place: str, tmp_path: Path) -> None:
    program = _built(tmp_path, USES.replace("plug(i)", "i"))
    for name in ("there", "blocked.libs"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "leads.libs").symlink_to("folder")
    (tmp_path / "has.libs").mkdir()
    (tmp_path / "has.libs/libc.so.6").touch()
    before = sorted(tmp_path.rglob("*"))
    words = ("probe", program, "p libc.so.6:printf", "-o", tmp_path / place)
    dry, wet = ftpatch(*words, "--dry-run"), ftpatch(*words)
    assert dry.code == wet.code and dry.code in (2, 3), dry.err
    assert dry.err == wet.err == f"ftpatch: {tmp_path}/{PLACES[place]}\n"
    assert sorted(tmp_path.rglob("*")) == before
    if place in ("there", "has"):
        assert ftpatch(*words, "--dry-run", "--force").code == 0
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_dry_run_where_nothing_may_be_written(shared: Path) -> None:
    program = _built(shared, USES.replace("plug(i)", "i"))
    words = ("probe", program, "p main", "-o", shared / "out")
    assert ftpatch(*words, "--dry-run").code == 0  # all is imported
    dry, wet = ftpatch_as(NOBODY, *words, "--dry-run"), ftpatch_as(NOBODY, *words)
    assert dry.err == wet.err == f"ftpatch: {shared}/out: cannot write: Permission denied\n"
    assert dry.code == wet.code != 0


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder that every user may look into."""
    folder = Path("/tmp") / f"ft-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_undo_of_what_root_has_attached(shared: Path) -> None:
    path, trace = _built(shared, WAITS), shared / "t.trace"
    pipe = subprocess.PIPE
    with subprocess.Popen([path], stdin=pipe, stdout=pipe, user=NOBODY, group=NOBODY) as program:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        pid = ("--pid", str(program.pid))
        none = ftpatch("undo", *pid)
        assert none.code == 2 and "ftpatch is not attached" in none.err
        done = ftpatch("probe", *pid, "p one", "r one", "p main+4", "--keep", "-o", trace)
        assert done.code == 0, done.err
        refused = ftpatch_as(NOBODY, "undo", *pid)
        said = f"it is recorded into {trace}, but not by this user; run `ftpatch undo --pid "
        assert refused.code == 2 and said in refused.err, refused.err
        assert "such as root" in refused.err
        undone = ftpatch("undo", *pid)
        assert undone.code == 0 and "3 probes taken out; paused for" in undone.out
        assert "site" not in undone.out and not ours_in(program.pid)
        program.communicate()


def test_too_few_open_files(tmp_path: Path) -> None:
    program = _built(tmp_path, USES.replace("plug(i)", "i"))
    seen = set[str]()
    for most in range(9, 20):
        words = " ".join(map(str, ftpatch_command("probe", "-c", program)))
        done = subprocess.run(
            ["sh", "-c", f"ulimit -n {most}; {words} 'p main'"],
            env=child_env(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 125:
            seen.add(done.stderr.splitlines()[-1])
    assert seen
    for said in seen:
        assert "Too many open files" in said and "ulimit -n" in said, said


def test_a_report_of_a_moved_program_finds_its_copies(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    library = _built(
        tmp_path, LIBRARY, "-shared", "-fpic", "-Wl,-soname,libplug.so", name="libplug.so"
    )
    program = _built(tmp_path, USES, str(library), f"-Wl,-rpath,{tmp_path}")
    probes = (
        "p:deep libplug.so:inner n=$arg1:s32 stack",
        "p:by libplug.so:inner hist:keys=stack:fp",
    )
    done = ftpatch("probe", program, *probes, "-o", before / "out")
    assert done.code == 0, done.err
    environment = {**os.environ, "FTPATCH_TRACE": str(tmp_path / "trace")}
    subprocess.run([before / "out"], env=environment, check=True, capture_output=True)
    there = ftpatch("report", tmp_path / "trace")
    calls = [line for line in there.out.splitlines() if line.startswith(" => ")]
    assert len(calls) >= 12 and calls[1].startswith(" => plug+") and calls[2].startswith(" => main")
    before.rename(after)
    library.unlink()  # nor is the original where it was
    gone = ftpatch("report", tmp_path / "trace")
    assert " => plug+" not in gone.out
    moved = ftpatch("report", tmp_path / "trace", "--image", after / "out")
    assert moved.out == there.out and not moved.err, moved.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p vfs_open if n > 3", "a kernel's probes have no filter"),
        ("p vfs_open if n > 3 && every(9)", "a kernel's probes have no every(): 'every' at column"),
        ("p vfs_open if first(9)", "a kernel's probes have no first(): 'first' at column 15"),
        ("p vfs_open hist:keys=$tid", "a kernel's probes have no histogram"),
        ("p vfs_open stack", "a kernel's probes record no stacks"),
    ],
)
def test_what_a_kernel_is_told_otherwise(text: str, said: str) -> None:
    refused = Refused()
    with pytest.raises(UsageError, match="") as caught:
        parse_probe(text, ["di"], arguments=6, kernel=True)
    assert parse_probes([text], ["di"], refused, arguments=6, kernel=True) == ()
    assert said in str(caught.value) and "of a running one" in str(caught.value)
