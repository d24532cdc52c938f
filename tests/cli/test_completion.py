# SPDX-License-Identifier: MIT
"""Completions, as bash asks for them by the script that ``--show-completion`` prints."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ftpatch.cli.completion import check_formats, images, report_formats, some_of, tracers, traces
from ftpatch.elf.relocations import Form
from tests.support.boot_images import bzimage, zboot
from tests.support.command import ROOT, ftpatch, ftpatch_process
from tests.support.raw_images import ARM64, V6, Made
from tests.support.samples import SAMPLES
from tests.support.trace_writer import TraceFile


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _bash(*words: str) -> list[str]:
    """What bash offers for the last word."""
    bin_ = Path("bin")
    bin_.mkdir(exist_ok=True)
    (bin_ / "ftpatch").write_text(f'#!/bin/sh\nexec {sys.executable} -m ftpatch "$@"\n')
    (bin_ / "ftpatch").chmod(0o755)
    script = """
eval "$(_FTPATCH_COMPLETE=source_bash ftpatch)"
function=$(complete -p ftpatch | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$function ftpatch
printf '%s\\n' "${COMPREPLY[@]}"
"""
    env = {"PATH": f"{bin_.absolute()}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script, "bash", "ftpatch", *words],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("check --format s", ["sarif"]),
        ("status --format ", ["text", "json"]),
        ("report --format fl", ["flamegraph"]),
        ("report --format ht", ["html"]),
        ("trace --tracer function_", ["function_graph", "function_profile"]),
        ("enable --tracer n", ["nop"]),
        ("che", ["check"]),
        ("check --base", ["--baseline"]),
    ],
)
def test_bash_offers_values(words: str, offered: list[str]) -> None:
    assert _bash(*words.split(" ")) == offered


def test_bash_offers_files_of_the_kind() -> None:
    shutil.copy(SAMPLES[0].path, "some.image")
    TraceFile().write(Path("some.trace"))
    Path("some.text").write_text("some\n")
    assert _bash("status", "some") == ["some.image"]
    assert _bash("report", "some") == ["some.trace"]


def test_bash_offers_processes() -> None:
    own = str(os.getpid())
    assert own in _bash("status", "--pid", own) and own in _bash("check", "--pid", own[:-1])
    assert _bash("list", "--pid", "x") == []


def test_every_value_is_taken_by_its_option(tmp_path: Path) -> None:
    """And what is not offered is not."""
    image = SAMPLES[0].path
    for name in check_formats(""):
        assert "unknown format" not in ftpatch("check", "--format", name, image).err
    for name in some_of("text", "json")(""):
        assert ftpatch("status", "--format", name, image).code == 0
    for name in report_formats(""):
        assert "unknown format" not in ftpatch("report", "--format", name, "nothing").err
    for name in tracers(""):
        assert "unknown tracer" not in ftpatch("enable", image, "--tracer", name).err
    assert "unknown format" in ftpatch("report", "--format", "nothing", "nothing").err


def test_every_sample_is_an_image() -> None:
    for one in SAMPLES:
        shutil.copy(one.path, one.name)
    assert images("") == sorted(one.name for one in SAMPLES)
    assert traces("") == []


def test_what_holds_an_image_is_one() -> None:
    kernel = SAMPLES[0].data
    stream = gzip.compress(kernel, 1)
    boxed: dict[str, bytes] = {
        "bzImage": bzimage(stream),
        "zImage": zboot(stream, len(stream), "gzip"),
    }
    boxed |= {"kernel.gz": stream, "kernel.xz": lzma.compress(kernel)}
    raw = Made(ARM64, Form.NONE, V6)
    for name, data in {
        **boxed,
        "Image": bytes(raw.data),
        "text": b"MZ, and no kernel\n" * 99,
    }.items():
        Path(name).write_bytes(data)
    Path("empty").touch()
    assert images("") == sorted([*boxed, "Image"])


def test_folders_are_left_to_the_shell() -> None:
    shutil.copy(SAMPLES[0].path, "kernel")
    Path("kernels").mkdir()
    assert images("kernel") == images("") == []
    assert images(f"{Path.cwd()}/kernels/") == []
    shutil.copy(SAMPLES[0].path, "kernels/one")
    assert images("kernels/") == ["kernels/one"]
    assert images("nowhere/") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "position"),
    [
        ("ftpatch st", "x"),
        ("ftpatch st", ""),
        ("ftpatch st", "1.5"),
        ("ftpatch st", "-9"),
        ("ftpatch st", "3"),
        ("ftpatch st", "9" * 30),
        ("", "1"),
        ("ftpatch stat 'us", "99"),
        (None, "1"),
    ],
)
def test_nonsense_is_offered_nothing(
    shell: str, words: str | None, position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_FTPATCH_COMPLETE", f"complete_{shell}")
    for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        monkeypatch.setenv(name, words) if words is not None else monkeypatch.delenv(name, False)
    monkeypatch.setenv("COMP_CWORD", position)
    done = ftpatch_process()
    assert (done.code, done.out, done.err) == (0, "", "")
