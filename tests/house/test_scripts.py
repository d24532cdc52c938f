# SPDX-License-Identifier: MIT
"""What sets the tests up, on a machine that installs something else at the time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import PATIENCE

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"
HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""
needs_apt = pytest.mark.skipif(not shutil.which("apt-get"), reason="not a Debian system")


def _own_apt(folder: Path) -> dict[str, str]:
    """An environment in which apt-get has a machine of its own, with nothing to fetch."""
    for name in ("lists/partial", "dpkg", "cache/archives/partial", "etc"):
        (folder / name).mkdir(parents=True)
    for name in ("dpkg/status", "etc/sources.list"):
        (folder / name).touch()
    settings = {
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "dpkg/status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "etc/sources.list",
        "Dir::Etc::sourceparts": folder / "etc",
        "Dir::Bin::dpkg": "/bin/true",
    }
    config = folder / "apt.conf"
    config.write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    return os.environ | {"APT_CONFIG": str(config)}


def _while_held(
    lock: Path, seconds: float, words: list[str], env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, lock, str(seconds)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        try:
            return subprocess.run(
                ["sh", SCRIPTS / "apt-get.sh", *words],
                env=env,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
        finally:
            holder.kill()


@needs_apt
@pytest.mark.parametrize(
    ("lock", "words"),
    [
        ("lists/lock", ["update", "-q"]),
        ("cache/archives/lock", ["clean"]),
        ("dpkg/lock-frontend", ["install", "-qy"]),
    ],
)
def test_apt_waits_for_every_lock(lock: str, words: list[str], tmp_path: Path) -> None:
    env = _own_apt(tmp_path)
    if lock.startswith("dpkg") and os.geteuid():
        pytest.skip("root's own lock")
    done = _while_held(tmp_path / lock, 1.5, words, env)
    assert done.returncode == 0, done.stderr


@needs_apt
def test_apt_gives_up_in_the_end_and_says_why(tmp_path: Path) -> None:
    env = _own_apt(tmp_path) | {"WAIT": "1"}
    done = _while_held(tmp_path / "lists/lock", PATIENCE, ["update", "-q"], env)
    assert done.returncode == 100
    assert "Could not get lock" in done.stderr


@pytest.mark.parametrize("script", ["packages.sh", "environment.sh"])
def test_set_up_waits_for_locks(script: str, tmp_path: Path) -> None:
    """As root on a Debian without anything, with an apt-get that first finds its lists locked."""
    fakes = {
        "id": "echo 0",
        "dpkg-query": "exit 1",
        "sleep": "exit 0",
        "apt-get": f"""echo "$*" >>{tmp_path}/said
            [ -e {tmp_path}/there ] || {{
                touch {tmp_path}/there
                echo "E: Could not get lock /var/lib/apt/lists/lock." >&2
                exit 100
            }}""",
        # One whose venv came with apt.
        "python": f"""case "$2" in
                *ensurepip*) test $(wc -l <{tmp_path}/said 2>/dev/null || echo 0) -gt 2;;
                venv) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";;
            esac""",
    }
    for name, text in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["python", str(tmp_path / "venv")] if script == "environment.sh" else []
    done = subprocess.run(
        ["sh", SCRIPTS / script, *words], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text().splitlines()
    assert [line.split()[2] for line in said] == ["update", "update", "install"]
    assert all(line.startswith("-o DPkg::Lock::Timeout=300 ") for line in said)


@pytest.mark.parametrize(
    ("more", "size", "installed"), [([], "0.2 GB", "."), (["tests"], "0.8 GB", ".[test]")]
)
def test_what_is_installed_is_said_before(
    more: list[str], size: str, installed: str, tmp_path: Path
) -> None:
    """Installing takes a while, and pip is quiet."""
    python = tmp_path / "env/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "pip: $*"\n')
    python.chmod(0o755)
    words = ["sh", str(SCRIPTS / "environment.sh"), sys.executable, str(tmp_path / "env"), *more]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE)
    told, pip = done.stdout.splitlines()
    assert size in told and str(tmp_path / "env") in told
    assert pip.startswith("pip: -m pip install") and pip.split()[-1] == installed


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_a_demo_does_without_what_the_tests_need(tmp_path: Path) -> None:
    def commands(target: str, *words: str) -> list[str]:
        make = ["make", "-n", *words, f"VENV={tmp_path}", target]
        done = subprocess.run(make, cwd=SCRIPTS.parent, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if "environment.sh" in line]

    (demo,) = commands("demo")
    (lint,) = commands("lint")
    assert lint.endswith(" tests") and demo == lint.removesuffix(" tests")
    for name in (".installed", ".ready"):
        (tmp_path / name).touch()
    assert commands("demo") == commands("lint") == []
