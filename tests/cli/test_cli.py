# SPDX-License-Identifier: MIT
"""The command line: exit codes, terminals, broken pipes, hostile names."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import (
    PATIENCE,
    Result,
    child_env,
    ftpatch,
    ftpatch_command,
    ftpatch_process,
)
from tests.support.doc_pages import ROOT
from tests.support.elf_writer import Symbol
from tests.support.images import pad_program
from tests.support.samples import sample
from tests.support.terminals import shown_text

Copied = Callable[[str], Path]
ENVIRONMENT = child_env(COLUMNS="80")


def _is_one_line(result: Result) -> None:
    assert re.fullmatch(r"ftpatch: [^\n]+\n", result.err), result
    assert not result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nope"], "no such option --nope; see `ftpatch --help`"),
        (["nosuch"], "no such command 'nosuch'; see `ftpatch --help`"),
        (["help"], "no such command 'help'; use `ftpatch VERB --help`"),
        (["help", "trace"], "no such command 'help'; use `ftpatch trace --help`"),
        (["help", "record"], "no such command 'help'; use `ftpatch VERB --help`"),
        (["/bin/true", "3"], "no such command '/bin/true'; use `ftpatch trace /bin/true`"),
        (["env"], "no such command 'env'; use `ftpatch trace env`"),
        (["FOLDER"], "; see `ftpatch --help`"),
        (["reprot", "x"], "no such command 'reprot'; did you mean report?"),
        (["enable"], "no IMAGE and no --pid"),
        (["enable", "IMAGE", "OTHER"], "enable takes one IMAGE; remove "),
        (["list", "IMAGE", "vfs_read"], "list takes one IMAGE; for functions use -f vfs_read"),
        (["diff", "IMAGE", "OTHER", "x"], "diff takes only IMAGE and OTHER; remove x"),
        (["undo", "IMAGE", "x"], "undo takes one IMAGE; remove x"),
        (["report"], "no FILE; name trace files of a program"),
        (["extract"], "no IMAGE; name one: bzImage, zImage, zboot image or compressed file"),
        (["list", "IMAGE", "--filtr", "x"], "no such option --filtr; did you mean --filter?"),
        (["watch", "--second", "1"], "no such option --second; did you mean --seconds?"),
        (["report", "--time-fil", "1"], "no such option --time-fil; did you mean --time-filter?"),
        (["report", "--html"], "no such option --html; use --format html"),
        (["check", "--sarif"], "no such option --sarif; use --format sarif"),
        (["list", "--sarif"], "no such option --sarif; see `ftpatch list --help`"),
        (["list", "-z"], "no such option -z; see `ftpatch list --help`"),
        (["list", "IMAGE", "-f"], "-f needs a value; add GLOB"),
        (["list", "--FORMAT", "json"], "no such option --FORMAT; did you mean --format?"),
        (["check", "IMAGE", "--format", "SARIF"], "unknown format 'SARIF'; did you mean sarif?"),
        (["status", "-p", "sshd"], "--pid 'sshd' is not a process number; find it with `pgrep"),
        (["status", "-p", "1.5"], "is not a process number; see `ftpatch status --help`"),
        (["probe", "p printf", "IMAGE"], "'p printf' is not a file; PROG comes before the probes"),
        (["watch", "x:rw-", "IMAGE"], "'x:rw-' is not a file; PROG comes before the watches"),
        (["probe", "-p", "1", "p x", "--seconds", "1h"], "--seconds '1h' is not a time; see"),
        (["enable", "--nope", "IMAGE"], "no such option --nope; see `ftpatch enable"),
        (["status", "--format", "yaml", "IMAGE"], "text or json"),
        (["diff", "--limit", "many", "IMAGE"], "--limit"),
        (["diff", "--limit", "-1", "IMAGE"], "--limit"),
        (["status", "MISSING"], "No such file"),
        (["list", "FOLDER"], "a folder; name a file in it"),
        (["list", "/dev/null"], "regular file"),
        (["check", "TEXT"], "not an ELF file"),
        (["status", "NOTABLE"], "no __mcount_loc"),
        (["list", "IMAGE", "-f", "nothing"], "matches no site"),
        (["list", "IMAGE", "-f", "vfs_(", "--regex"], "not a regular expression"),
        (["enable", "IMAGE", "--to", "nothing"], "no such symbol"),
        (["enable", "IMAGE", "--to", "0x10"], "not code"),
        (["enable", "IMAGE", "--site", "ftrace_call"], "no ftrace_call"),
        (["enable", "IMAGE", "--site", "x"], "no named site"),
        (["enable", "IMAGE", "--site", "ftrace_call", "-f", "x"], "--site"),
        (["disable", "IMAGE", "--nop", "nop9"], "no NOP"),
        (["disable", "ARM64", "--nop", "p6"], "no NOP"),
        (["undo", "IMAGE"], "no journal"),
        (["diff", "IMAGE"], "no journal"),
        (["diff", "IMAGE", "TEXT"], "not an ELF file"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_2(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("no ELF\n")
    names = {
        "IMAGE": sample("pad").path,
        "OTHER": sample("fentry").path,
        "ARM64": sample("arm64-pad").path,
        "NOTABLE": sample("libfentry.so").path,
        "MISSING": tmp_path / "missing",
        "FOLDER": tmp_path,
        "TEXT": text,
    }
    result = ftpatch(*(names.get(argument, argument) for argument in arguments))
    assert result.code == 2 and words in result.err
    _is_one_line(result)
    assert {path.name for path in tmp_path.iterdir()} == {"text"}


def test_without_a_callee_both_ways_to_name_one_are_said() -> None:
    result = ftpatch("enable", sample("pad-stripped").path, "--dry-run")
    assert result.code == 2 and "--to" in result.err and "--tracer" in result.err
    _is_one_line(result)


def test_exit_codes_of_success_and_of_findings(copy_of: Copied) -> None:
    path = copy_of("pad")
    other = path.with_name("other")
    assert ftpatch("enable", path, "-o", other).code == 0
    for verb in ("status", "list", "check", "enable", "disable"):
        dry = ["--dry-run"] if "able" in verb else []
        assert ftpatch(verb, path, *dry).code == 0
    assert ftpatch("diff", path, path).code == 0
    assert ftpatch("diff", path, other).code == 1
    assert ftpatch("diff", path, other, "-q") == Result(1, "", "")
    data = bytearray(path.read_bytes())
    data[ftpatch("list", "--json", path).json[0]["offset"]] = 0xCC
    path.write_bytes(data)
    assert ftpatch("status", path).code == ftpatch("list", path).code == 0
    assert ftpatch("check", path).code == 1
    assert ftpatch("enable", path, "--dry-run").code == 1


def test_two_builds_differ() -> None:
    """Their sites do the same, by name; that is not to say that nothing differs."""
    result = ftpatch("diff", sample("pad").path, sample("pad-cet").path)
    assert result.code == 1 and "nothing differs" not in result.out


def test_version_and_no_arguments() -> None:
    version = ftpatch("--version")
    assert version.code == 0 and re.fullmatch(r"ftpatch \d+\.\d+\S*\n", version.out)
    bare = ftpatch()
    assert "Usage: ftpatch" in bare.out + bare.err and "\\n" not in bare.out + bare.err
    assert len((bare.out + bare.err).splitlines()) > 10


@pytest.mark.parametrize("verb", [["enable"], ["disable"], ["check"]])
def test_quiet(verb: list[str], copy_of: Copied) -> None:
    path = copy_of("fentry")
    assert ftpatch(*verb, "-q", path) == Result(0, "", "")
    if verb != ["check"]:
        output = path.with_name("fentry.ftpatch")
        assert ftpatch("undo", "-q", output) == Result(0, "", "")
        assert output.read_bytes() == path.read_bytes()


def test_a_pipe_that_closes_ends_it_quietly(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(pad_program(names=[f"function_{i:05}" for i in range(5000)]).build())
    with subprocess.Popen(
        ftpatch_command("list", str(path)),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"IP")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) != 0


def test_as_a_module_and_as_a_program() -> None:
    result = ftpatch_process("status", "--json", sample("pad").path)
    assert result == ftpatch("status", "--json", sample("pad").path)
    assert ftpatch_process("--nope").code == 2


def _on_a_terminal(*arguments: str | Path, **environment: str) -> str:
    """What a command writes where standard output is a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        ftpatch_command(*arguments),
        env={**ENVIRONMENT, "TERM": "xterm-256color"} | environment,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    out = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # Linux: EIO when the other side is closed
            break
        if not part:
            break
        out += part
    process.wait(PATIENCE)
    os.close(leader)
    return shown_text(out)


def test_json_on_a_terminal_is_json() -> None:
    shown = _on_a_terminal("status", "--json", sample("pad").path)
    assert json.loads(shown)["sites"] == 17 and "\x1b" not in shown


HOSTILE = ["esc\x1b[31mred", "new\nline", "bell\a", "[bold]x[/bold]", "[/]", "\x9b31m", "\u202ertl"]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A program whose names would move a cursor, or close a tag that was never opened."""
    image = pad_program(names=[f"name{i}" for i in range(len(HOSTILE))])
    for i, name in enumerate(HOSTILE):
        old = image.symbols[i + 1]
        image.symbols[i + 1] = Symbol(name, old.value, old.size)
    path = tmp_path / "im\x1bage"
    path.write_bytes(image.build())
    return path


def test_names_are_escaped(hostile: Path) -> None:
    results = [ftpatch(verb, hostile) for verb in ("status", "list", "check")]
    results += [ftpatch("enable", hostile), ftpatch("diff", hostile)]
    results += [ftpatch("list", hostile, "-f", "no\x1bname"), ftpatch("undo", hostile)]
    results.append(ftpatch("enable", hostile, "--to", "no\x1bname", "--force"))
    for result in results:
        text = (result.out + result.err).replace("\n", "")
        assert text.isprintable(), result
    listed = ftpatch("list", hostile).out
    assert "esc\\x1b[31mred" in listed and "[bold]x[/bold]" in listed and "new\\nline" in listed
    assert len(listed.splitlines()) == 1 + len(HOSTILE)


def test_names_are_escaped_on_a_terminal(hostile: Path) -> None:
    for verb in ("list", "status", "check"):
        shown = _on_a_terminal(verb, hostile, NO_COLOR="1")
        own = re.sub(r"\x1b\[[013]?m", "", shown)  # rich's own bold and italic
        assert own.replace("\n", "").isprintable()
        if verb == "list":
            assert "[bold]x[/bold]" in own and "[/]" in own and "[31mred" in own


def test_a_refused_site_s_name_is_escaped(hostile: Path) -> None:
    data = bytearray(hostile.read_bytes())
    data[ftpatch("list", "--json", hostile).json[0]["offset"]] = 0xCC
    hostile.write_bytes(data)
    result = ftpatch("enable", hostile)
    assert result.code == 1 and "esc\\x1b[31mred+0x0" in result.err
    assert (result.out + result.err).replace("\n", "").isprintable()
    assert "\x1b" not in ftpatch("check", hostile).out


@pytest.mark.parametrize("words", [("-f", "\udcff"), ("--to", "\udcff"), ("--to", "\ud800")])
def test_names_that_no_file_can_have(words: tuple[str, str], tmp_path: Path) -> None:
    """Bytes of the command line that are no UTF-8."""
    result = ftpatch("enable", sample("pad").path, *words, "-o", tmp_path / "out")
    assert result.code == 2 and re.fullmatch(r"ftpatch: [^\n]+\n", result.err)
    assert "internal" not in result.err and "cannot read" not in result.err


@pytest.mark.parametrize("words", [("undo",), ("disable", "--in-place"), ("check",), ("report",)])
def test_an_empty_path_is_not_the_current_directory(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ftpatch(*words, "")
    assert (done.code, done.out) == (2, "")
    assert done.err == "ftpatch: an empty path; use . for the current directory\n"


def test_a_file_that_cannot_be_read_is_named() -> None:
    """Some of /proc can be opened, and not read."""
    done = ftpatch("check", "/proc/self/task")
    assert done.code == 2 and "standard output" not in done.err and "/proc/self/task/" in done.err


def test_commands_that_run_programs_leave_2_to_them() -> None:
    """Those that the page names, for misspelt options too."""
    page = (ROOT / "docs" / "command-line.md").read_text()
    (named,) = re.findall(r"^(.+) exit with the program's own status", page, re.MULTILINE)
    commands = [text.split() for text in re.findall(r"`([^`]+)`", named)]
    assert ["probe", "-c"] in commands and ["trace"] in commands
    for words in commands:
        result = ftpatch(*words, *(["./shop"] if "-c" in words else []), "--nosuch")
        assert result.code == 125 and "no such option --nosuch" in result.err, words
    for words in (["probe", "./shop"], ["probe", "--pid", "1"], ["status"]):
        assert ftpatch(*words, "--nosuch").code == 2
