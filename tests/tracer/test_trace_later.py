# SPDX-License-Identifier: MIT
"""``trace --lib``: libraries that are opened later. They count the calls of their functions
themselves, constructors included."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, Result, child_env, ftpatch_command, ftpatch_process
from tests.support.trace_file_programs import native

pytestmark = native
SOURCE = Path(__file__).with_name("opening.c")
PAD = "-fpatchable-function-entry=5"
LIBRARY = """
int calls;
__attribute__((noinline)) int NAME(int n) { calls++; __asm__ volatile(""); return n + 1; }
__attribute__((constructor)) static void begun(void) { NAME(0); calls++; }
__attribute__((destructor)) static void gone(void) { NAME(0); }
int entry(int n) { int sum = 0; calls++; for (int i = 0; i < n; i++) sum += NAME(i); return sum; }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, and libraries libleaf.so, libtwig.so, and libbare.so, which has no sites."""
    folder = tmp_path_factory.mktemp("opening")
    gcc = ["gcc", "-O1", "-w"]
    for name, flags in {"leaf": [PAD], "twig": [PAD], "bare": []}.items():
        (folder / f"{name}.c").write_text(LIBRARY.replace("NAME", name))
        words = ["-shared", "-fPIC", f"{folder}/{name}.c", "-o", f"{folder}/lib{name}.so"]
        subprocess.run([*gcc, *flags, *words], check=True)
    for name, flags in {"opening": [PAD], "nosites": []}.items():
        words = [*flags, "-pthread", str(SOURCE), "-o", f"{folder}/{name}"]
        subprocess.run([*gcc, *words], check=True)
    return folder


def _words(folder: Path, text: str) -> list[str]:
    words = text.split()
    return [re.sub(r"^(opening|nosites|path)(?=/|$)", rf"{folder}/\1", one) for one in words]


def _trace(folder: Path, text: str, *options: str) -> tuple[Result, str]:
    """What a traced program has done, and what one does without ftpatch."""
    words = [word.replace("HERE", str(folder)) for word in _words(folder, text)]
    paths = {"LD_LIBRARY_PATH": str(folder)}
    plain = subprocess.run(
        words, env=child_env(**paths), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    options = options or ("--lib", "lib*.so", "--tracer", "function")
    found = ftpatch_process("trace", *options, "--format", "json", "--", *words, env=paths)
    assert found.code == plain.returncode
    assert found.out.startswith(plain.stdout)
    return found, plain.stdout


def _calls(found: Result) -> Counter[str]:
    return Counter(re.findall(r'"function": ?"(\w+)"', found.out))


HOWS = {
    "once HERE/libleaf.so 1": {"leaf": 5, "begun": 1, "gone": 1, "entry": 1, "own": 1},
    "once libleaf.so 1": {"leaf": 5, "begun": 1, "gone": 1, "entry": 1, "own": 1},
    "once HERE/libleaf.so 20": {"leaf": 100, "begun": 20, "gone": 20, "entry": 20, "own": 20},
    "thread libleaf.so 3": {"leaf": 15, "begun": 3, "gone": 3, "entry": 3, "own": 3},
    "fork libleaf.so 2 libtwig.so": {
        "leaf": 6,  # 1 + 1 by the parent, 2 by its child, and both end
        "twig": 10,
        "begun": 3,
        "gone": 4,
        "entry": 4,
        "own": 2,
    },
    "two libleaf.so 0": {"leaf": 10, "begun": 2, "gone": 2, "entry": 3},
    "moves libleaf.so 2 libtwig.so": {
        "leaf": 20,
        "twig": 2,
        "begun": 5,
        "gone": 5,
        "entry": 4,
        "own": 4,
    },
    "signals libleaf.so 5": {"leaf": 25, "begun": 5, "gone": 5, "entry": 5, "own": 5},
}


@pytest.mark.parametrize("program", ["opening", "nosites"])
@pytest.mark.parametrize("how", HOWS, ids=lambda text: text.split("/")[0].replace(" ", "-"))
def test_all_calls(how: str, program: str, folder: Path) -> None:
    found, _ = _trace(folder, f"{program} {how}")
    calls = _calls(found)
    assert found.err == ""
    wanted = {name: n for name, n in HOWS[how].items() if program == "opening" or name != "own"}
    assert {name: calls[name] for name in wanted} == wanted


def test_the_librarys_own_count(folder: Path) -> None:
    """Of all calls but that of the destructor, which comes after it is told."""
    found, said = _trace(folder, "opening once libleaf.so 7")
    counted = sum(map(int, re.findall(r"(\d+) calls", said)))
    calls = _calls(found)
    assert counted == calls["leaf"] + calls["begun"] + calls["entry"] - calls["gone"] == 42


@pytest.mark.parametrize("tracer", ["function_graph", "function_profile"])
def test_other_tracers(tracer: str, folder: Path) -> None:
    words = [f"{folder}/opening", "once", f"{folder}/libleaf.so", "2"]
    found = ftpatch_process("trace", "--lib", "libleaf*", "--tracer", tracer, *words)
    assert (found.code, found.err) == (4, "")
    if tracer == "function_profile":
        assert re.search(r"^ +10 .* leaf$", found.out, re.MULTILINE)
    else:
        assert found.out.count("leaf();") == 10 and found.out.count("entry() {") == 2


def test_arguments(folder: Path) -> None:
    words = [f"{folder}/opening", "once", f"{folder}/libleaf.so", "1"]
    found = ftpatch_process("trace", "--lib", "libleaf*", "--args", "-f", "leaf", *words)
    assert (found.code, found.err) == (4, "")
    assert len(re.findall(r"leaf\(0x[0-2],.*\);.* = 0x[1-3]", found.out)) == 5


def test_only_what_is_chosen(folder: Path) -> None:
    """By its name, and by a function's."""
    found, _ = _trace(folder, "opening moves libleaf.so 1 libtwig.so", "--lib", "libtwig*")
    calls = _calls(found)
    assert found.err == "" and calls["leaf"] == 0 and calls["twig"] > 0
    options = ("--lib", "lib*", "-f", "leaf", "--tracer", "function")
    found, _ = _trace(folder, "opening once libleaf.so 1", *options)
    assert found.err == "" and set(_calls(found)) == {"leaf"}


def test_what_matches_nothing_is_named(folder: Path) -> None:
    found, _ = _trace(folder, "opening once libleaf.so 1", "--lib", "libnone*", "-f", "own")
    assert "--lib 'libnone*' matches no library that the program has loaded" in found.err
    found, _ = _trace(folder, "opening once libleaf.so 1", "--lib", "libleaf*", "-f", "laef")
    assert "filter 'laef' matches no function of what was loaded" in found.err


def test_libraries_without_sites_are_no_error(folder: Path) -> None:
    found, _ = _trace(folder, "opening once libbare.so 1")
    assert found.err == "" and _calls(found)["own"] == 1


def test_other_programs_of_it_are_as_they_were(folder: Path) -> None:
    """They have no hook, and their libraries are their files."""
    found, _ = _trace(folder, "opening exec libleaf.so 1 nosites once libleaf.so 2")
    assert _calls(found)["leaf"] == 0


def test_along_with_other_programs(folder: Path) -> None:
    options = ("--lib", "libleaf*", "--follow-exec", "--tracer", "function")
    found, _ = _trace(folder, "opening once libleaf.so 2", *options)
    assert found.err == "" and _calls(found)["leaf"] == 10


def test_killed_it_is_in_nobodys_way(folder: Path) -> None:
    """The hook is still there, and nobody answers."""
    inner = [f"{folder}/opening", "gate", f"{folder}/libleaf.so", "3"]
    words = ftpatch_command("trace", "--lib", "libleaf*", *inner)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_env()
    ) as traced:
        assert traced.stdin is not None and traced.stdout is not None
        pid = int(traced.stdout.readline().split()[1])
        assert "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text()
        traced.kill()
        os.waitid(os.P_PID, traced.pid, os.WEXITED | os.WNOWAIT)
        traced.stdin.close()
        assert traced.stdout.read() == "6: 6 calls\n" * 3


@pytest.mark.parametrize("name", ["HERE/libleaf.so", "./libleaf.so", "HERE/alias.so"])
def test_what_it_is_linked_with_is_there_once(name: str, folder: Path) -> None:
    """Opened by whatever path, it is the one that the program is linked with: its own counter
    tells."""
    if not (folder / "alias.so").exists():
        (folder / "alias.so").symlink_to("libleaf.so")
        words = ["gcc", "-O1", "-w", PAD, "-pthread", str(SOURCE), "-o", f"{folder}/linked"]
        needed = ["-Wl,--no-as-needed", f"-L{folder}", "-lleaf"]
        subprocess.run([*words, *needed], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found, said = _trace(folder, f"{folder}/linked once {name} 3")
    assert said.count("\n") == 3 and said.endswith("14 calls\n")  # 2 + 3 * 4
    calls = _calls(found)
    assert found.err == ""
    assert [calls[one] for one in ("leaf", "begun", "gone", "entry")] == [1 + 3 * 3 + 1, 1, 1, 3]
