# SPDX-License-Identifier: MIT
"""What the documents show is what happens: their examples run, page by page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from ftpatch.cli.app import command_line
from tests.support.doc_pages import (
    PAGES,
    ROOT,
    Block,
    blocks,
    ftpatch_calls,
    inline_code,
    matches,
    steps,
)
from tests.support.watch_live import cannot

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

SEPARATOR = "\x1e"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the samples, and with ftpatch and its Python first on the path."""
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    bin_ = tmp_path / ".bin"
    bin_.mkdir()
    for name, words in (("ftpatch", "-m ftpatch"), ("python3", "")):
        command = bin_ / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        command.chmod(0o755)
    return tmp_path


def _run(folder: Path, block: Block) -> list[str]:
    """What each command of a block prints, run one after the other in one shell."""
    # The separator must leave $? to the next command.
    keep = f"_s=$?; printf '{SEPARATOR}'; (exit $_s)\n"
    script = "".join(command + keep for command, _ in steps(block))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{folder / '.bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            # No line of progress on a pseudo-terminal: only a slow machine draws one.
            "TERM": "dumb",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout.split(SEPARATOR)[: len(steps(block))]


@every_page
def test_examples_print_what_the_page_shows(page: Path, folder: Path) -> None:
    for block in blocks(page):
        if block.name:
            (folder / block.name).write_text(block.text)
        if block.language != "console" or block.not_run:
            continue
        if block.needs and not _has(block.needs, folder):
            continue
        printed = _run(folder, block)
        for (command, shown), came in zip(steps(block), printed, strict=True):
            assert matches(shown, came), (
                f"{page.name}:{block.line}: $ {command}shows\n{shown}and prints\n{came}"
            )


def _has(what: str, folder: Path) -> bool:
    """Whether this machine has what a block's marker names."""
    if what == "breakpoints in processes":
        return not cannot()
    if what != "hardware breakpoints":
        return shutil.which(what) is not None
    source = folder / "probe.c"
    source.write_text("int x; int main(void) { x = 1; return 0; }\n")
    script = (
        "gcc -O0 probe.c -o probe && ftpatch watch ./probe x:-w- -o probe.w >/dev/null &&"
        " FTPATCH_TRACE=probe.trace ./probe.w && ftpatch report --json probe.trace"
    )
    (printed,) = _run(folder, Block("console", "", 0, f"$ {script}\n"))
    return '"symbol"' in printed


@every_page
def test_a_block_runs_or_says_why_not(page: Path) -> None:
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        assert block.language in ("console", "sh", "c", "asm", "json", "text", "python"), where
        if block.language in ("c", "asm"):
            assert block.name, f"{where}: a program without a file name"
        if block.language == "console":
            assert steps(block), f"{where}: no command"


def _commands(page: Path) -> Iterator[str]:
    for block in blocks(page):
        if block.language == "console":
            yield from (command for command, _ in steps(block))
        elif block.language == "sh":
            yield block.text
    yield from (span for span in inline_code(page) if re.match(r"ftpatch [a-z]", span))


@every_page
def test_every_command_has_its_options(page: Path) -> None:
    root = command_line()
    verbs = root.commands
    for command in _commands(page):
        for line in re.split(r"(?<!\\)\n", command):
            for arguments in ftpatch_calls(line):
                verb = arguments[0] if arguments else ""
                if verb.startswith("-"):
                    with root.make_context(
                        "ftpatch", [*arguments[1:]], resilient_parsing=True
                    ) as c:
                        assert verb in {o for p in root.get_params(c) for o in p.opts}, command
                    continue
                assert verb in verbs, f"{page.name}: {command}"
                given = arguments[1:]
                # A command keeps the first help option that it is asked for.
                context = typer.Context(
                    verbs[verb],
                    info_name=verb,
                    resilient_parsing=True,
                    help_option_names=["-h", "--help"],
                )
                try:
                    verbs[verb].make_parser(context).parse_args(given)
                except Exception as error:
                    pytest.fail(f"{page.name}: {command}: {error}")


def test_only_what_differs_from_run_to_run_is_overlooked() -> None:
    shown = " 16453) + 67.567 us   |  } /* main */\n"
    assert matches(shown, " 7) 0.020 us |  } /* main */\n")
    assert not matches(shown, " 7) 0.020 us |  } /* fib */\n")
    assert matches("one\n...\nfour, ...\n", "one\ntwo\nthree\nfour, five\n")
    assert not matches("one\n...\nfour\n", "one\ntwo\n")
    assert not matches("", "an error\n")
    assert not matches("40 sites, 4 selected\n", "40 sites, 5 selected\n")
