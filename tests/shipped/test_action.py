# SPDX-License-Identifier: MIT
"""The GitHub Action and the pre-commit hook: by their schemas, and as their runners run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.broken import put_code
from tests.support.command import ROOT
from tests.support.images import fentry_kernel, symbols_at

X86 = 0xFFFF_FFFF_8100_0000
P6 = bytes.fromhex("0f1f440000")
NO_INDEX = re.compile("No matching distribution found|Could not find a version")
Done = subprocess.CompletedProcess[str]


def _module(*words: str | Path, cwd: Path = ROOT, **env: str) -> Done:
    command = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=os.environ | env, capture_output=True, text=True)


def _bad(folder: Path, name: str = "vmlinux") -> Path:
    path = folder / name
    path.write_bytes(put_code(fentry_kernel(), symbols_at(X86)["vfs_read"], P6).build())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with ftpatch where the first step of the action installs it."""
    bin_ = tmp_path / "temp/ftpatch/bin"
    bin_.mkdir(parents=True)
    (bin_ / "ftpatch").write_text(f'#!/bin/sh\nexec {sys.executable} -m ftpatch "$@"\n')
    (bin_ / "ftpatch").chmod(0o755)
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def _step(number: int, folder: Path, env: dict[str, str] | None = None, **inputs: str) -> Done:
    """A step, as the runner's composite handler runs it: inputs have their defaults, and bash the
    runner's options."""
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    known = {name: one.get("default", "") for name, one in action["inputs"].items()}
    assert set(inputs) <= set(known)
    step = action["runs"]["steps"][number]
    values = known | inputs
    told = {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: values[m[1]], text)
        for name, text in step.get("env", {}).items()
    }
    assert step["shell"] == "bash" and "${{" not in step["run"]
    script = folder / "step.sh"
    script.write_text(step["run"])
    own = {"GITHUB_ACTION_PATH": str(ROOT), "RUNNER_TEMP": str(folder.parent / "temp")}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | own | told | (env or {}),
        capture_output=True,
        text=True,
    )


def test_actions_own_schema() -> None:
    words = ("check_jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml")
    done = _module(*words)
    assert done.returncode == 0, done.stdout


def test_findings_are_annotated_and_fail(folder: Path) -> None:
    _bad(folder)
    done = _step(1, folder, images="vmlinux\n", sarif="out.sarif")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=vmlinux,title=ftpatch ftrace_init::")
    log = json.loads((folder / "out.sarif").read_text())
    assert [one["ruleId"] for one in log["runs"][0]["results"]] == ["ftrace_init"]


def test_a_baseline(folder: Path) -> None:
    _bad(folder)
    line = {"image": "vmlinux", "invariant": "ftrace_init", "place": "vfs_read"}
    (folder / "known").write_text(json.dumps(line) + "\n")
    done = _step(1, folder, images="vmlinux", baseline="known")
    said = "::notice title=ftpatch::1 image, 0 unreadable, 0 with findings, 1 known exception\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_excluded_files(folder: Path) -> None:
    (folder / "tree").mkdir()
    _bad(folder / "tree", "bad one")
    (folder / "tree/vmlinux").write_bytes(fentry_kernel().build())
    done = _step(1, folder, images="tree", exclude="\nbad *\n")
    said = "::notice title=ftpatch::1 image, 0 unreadable, every invariant holds\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


@pytest.mark.parametrize("name", ["a b", "$(touch ran)", "-q", "'; touch ran; '", "*"])
def test_names_are_names(name: str, folder: Path) -> None:
    _bad(folder, name)
    done = _step(1, folder, images=f"\n{name}\n\n")
    assert done.returncode == 1 and done.stdout.count("::error file=") == 1, done
    assert not (folder / "ran").exists()


def test_no_images_is_an_error(folder: Path) -> None:
    done = _step(1, folder, images="\n")
    assert done.returncode == 2 and "no images given" in done.stdout


def test_the_first_step_installs_it(tmp_path: Path) -> None:
    """And what it depends on; nothing is borrowed from here."""
    work = tmp_path / "work"
    work.mkdir()
    alone = {"PYTHONPATH": ""}
    done = _step(0, work, alone, images="vmlinux")
    if NO_INDEX.search(done.stderr):
        pytest.skip("no package index to take the dependencies from")
    assert done.returncode == 0, done.stderr
    _bad(work)
    done = _step(1, work, alone, images="vmlinux")
    assert done.returncode == 1 and done.stdout.startswith("::error file=vmlinux,"), done


def test_the_manifest_of_hooks() -> None:
    done = _module("pre_commit", "validate-manifest", ".pre-commit-hooks.yaml")
    assert done.returncode == 0, done.stdout
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    wanted = re.compile(hook["files"])
    for name in ("vmlinux", "a/vmlinux-6.1", "x/y.ko", "y.ko.xz", "boot/bzImage", "b/Image"):
        assert wanted.search(name), name
    for name in ("a.c", "vmlinux.d/readme", "README.md", "x.kos", "Images/a.png", "my.Image"):
        assert not wanted.search(name), name


def test_pre_commit_runs_the_hook(tmp_path: Path) -> None:
    """From this repository as it is, in an environment of pre-commit's own."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone of the repository")
    repository = tmp_path / "repository"
    repository.mkdir()
    git = ["git", "-c", "init.defaultBranch=main", "-C", str(repository)]
    subprocess.run([*git, "init", "-q"], check=True)
    _bad(repository)
    subprocess.run([*git, "add", "vmlinux"], check=True)
    words = ("pre_commit", "try-repo", ROOT, "ftpatch-check", "--all-files", "--color=never")
    done = _module(*words, cwd=repository, PRE_COMMIT_HOME=str(tmp_path / "home"))
    if NO_INDEX.search(done.stdout + done.stderr):
        pytest.skip("no package index to take the dependencies from")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"ftpatch check\.+Failed\n", done.stdout), done.stdout
    assert "vmlinux: ftrace_init: " in done.stdout
