# SPDX-License-Identifier: MIT
"""Helps: they fit 80 columns, and each has an example that the command line accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftpatch.cli.app import command_line
from ftpatch.cli.verbs import _make
from tests.support.command import ftpatch

CLI = command_line()
COMMANDS = sorted(getattr(CLI, "commands"))  # noqa: B009 - click's, whichever copy it is


def _examples(text: str) -> Iterator[list[str]]:
    """Words of each ``ftpatch COMMAND ...`` in a help's examples."""
    for line in text.splitlines():
        for part in re.split(r"; |^ *Example: ", line.split("   #")[0]):
            command = re.sub(r"^(\w+=\S+ )+", "", part.strip())
            if re.match(rf"ftpatch ({'|'.join(COMMANDS)}) ", command):
                yield shlex.split(re.split(r" {3,}", command)[0])


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_80_columns(name: str) -> None:
    result = ftpatch(*[name] * bool(name), "--help")
    assert result.code == 0 and not result.err
    assert max(map(len, result.out.splitlines())) <= 80
    assert "…" not in result.out
    assert not re.search(r"list\[|<\w+>|``", result.out), "Python's words, not the user's"
    if not name:
        summaries = result.out.split("Commands:\n")[1]
        assert "..." not in summaries, "a summary is cut off"
        assert len(summaries.splitlines()) == len(COMMANDS)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_examples_parse(name: str) -> None:
    examples = list(_examples(ftpatch(*[name] * bool(name), "--help").out))
    assert examples, "no example"
    assert not name or any(words[1] == name for words in examples)
    for words in examples:
        command = getattr(CLI, "commands")[words[1]]  # noqa: B009
        # Parses options and arguments, converts them, and runs nothing.
        context = command.make_context(words[1], list(words[2:]))
        assert context.params


def test_an_unknown_option_does_not_parse() -> None:
    command = getattr(CLI, "commands")["status"]  # noqa: B009
    with pytest.raises(Exception, match=r"[Nn]o such option"):
        command.make_context("status", ["--nope", "vmlinux"])
    assert not list(_examples("ftpatch nosuch vmlinux"))


@pytest.mark.parametrize("name", COMMANDS)
def test_summaries_are_imperatives(name: str) -> None:
    summary = getattr(CLI, "commands")[name].help.splitlines()[0]  # noqa: B009
    assert re.fullmatch(r"[A-Z][a-z]+ .*\.", summary), summary
    assert not re.match(r"(What|Which|Where|How|The|An?)\b", summary)


def test_verbs_stand_as_in_the_readme() -> None:
    shown = re.findall(r"^  (\w+)  ", ftpatch("--help").out.split("Commands:\n")[1], re.MULTILINE)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert shown == re.findall(r"^\| `(\w+) [^|]+\| [^|]+\|", readme, re.MULTILINE)


def test_libraries_of_a_process_are_disabled() -> None:
    said = " ".join(ftpatch("disable", "--help").out.split())
    assert "--lib GLOB With --pid: loaded libraries whose sites to disable as well" in said


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2), ("0.5", 0.5), ("1s", 1), ("500ms", 0.5), ("1.5 us", 1.5e-6)]
)
@pytest.mark.parametrize("verb", ["trace", "probe", "watch"])
def test_seconds_may_have_a_unit(verb: str, text: str, seconds: float) -> None:
    command = getattr(CLI, "commands")[verb]  # noqa: B009
    context = command.make_context(verb, ["--seconds", text, "-p", "1"])
    assert context.params["seconds"] == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_verb_knows_its_help_options_alone(name: str) -> None:
    _make.cache_clear()
    command = _make(name)
    context = command.make_context(name, [], resilient_parsing=True)
    option = command.get_help_option(context)
    assert option is not None and set(option.opts) == {"-h", "--help"}
    _make.cache_clear()
