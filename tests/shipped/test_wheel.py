# SPDX-License-Identifier: MIT
"""What a user installs: the wheel, in an environment that has nothing of this folder."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.command import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = ["pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check", "-w", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", *words, str(ROOT)], capture_output=True, text=True, timeout=300
    )
    if "No matching distribution found" in done.stderr:
        pytest.skip("no package index to take the build backend from")
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_a_wheel_has_what_belongs_to_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (info,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert metadata["License-Expression"] == "MIT" and licence.startswith("MIT License\n")
    assert metadata["Author"] == "the ftpatch contributors"
    assert "ftpatch/py.typed" in names
    stubs = {f"ftpatch/{path.relative_to(ROOT)}" for path in (ROOT / "stubs").rglob("*.elf")}
    assert stubs and stubs <= names
    assert "ftpatch/stubs/include/ftrace_regs.h" in names
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "ftpatch").rglob("*.py")}
    assert sources <= names
    pages = {path.name for path in (ROOT / "man").iterdir()}
    assert pages <= {Path(name).name for name in names if "/share/man/man1/" in name}
    assert not [name for name in names if name.startswith(("tests/", "samples/"))]


def test_a_wheel_runs_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """Only what it depends on is borrowed from here."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    words = ["pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True)
    env = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}

    def run(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(python, "-c", "import ftpatch; print(ftpatch.__file__)")
    assert where.startswith(str(tmp_path / "venv"))
    ftpatch = tmp_path / "venv/bin/ftpatch"
    assert "40 sites" in run(ftpatch, "status", ROOT / "samples/built/vmlinux-x86_64")
    run(ftpatch, "enable", ROOT / "samples/built/pad", "--tracer", "function", "-o", "traced")
    assert "every invariant holds" in run(ftpatch, "check", "traced")
