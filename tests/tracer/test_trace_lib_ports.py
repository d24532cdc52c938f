# SPDX-License-Identifier: MIT
"""Libraries that are traced with a program on arm64, under qemu."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.gnu import runner
from tests.support.library_programs import SOURCES

PREFIX = "aarch64-linux-gnu"
ROOT = Path("/usr", PREFIX)
PADS = "-fpatchable-function-entry=2"


def _compiled(folder: Path, source: str, name: str, *flags: str) -> Path:
    plus = "g++" if source.endswith("cpp") else "gcc"
    target = folder / name
    words = [f"{PREFIX}-{plus}", "-fno-inline", "-w", PADS, "-pthread", str(SOURCES / source)]
    subprocess.run([*words, "-o", str(target), *flags], check=True)
    return target


@pytest.mark.parametrize("guard", ["none", "standard"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("suffix", ["c", "cpp"])
def test_arm64(suffix: str, level: str, guard: str, tmp_path: Path) -> None:
    """What it prints, and what is traced; its dynamic linker is asked through qemu, too."""
    if shutil.which(f"{PREFIX}-g++") is None:
        pytest.skip(f"no {PREFIX}-g++")
    emulator = [*runner("arm64"), "-L", str(ROOT), "-cpu", "max"]
    more = (level, f"-mbranch-protection={guard}")
    soname = "-Wl,-soname,libshared.so.1"
    library = _compiled(
        tmp_path, f"shared.{suffix}", "libshared.so.1", "-shared", "-fPIC", soname, *more
    )
    program = _compiled(
        tmp_path, f"main.{suffix}", "prog", str(library), "-Wl,-rpath,$ORIGIN", *more
    )
    plain = subprocess.run([*emulator, str(program)], capture_output=True, check=False)
    linker = tmp_path / "ld.so"
    linker.write_text(
        f"#!/bin/sh\nexec {' '.join(emulator)} {ROOT}/lib/ld-linux-aarch64.so.1 "
        f'--library-path {ROOT}/lib "$@"\n'
    )
    linker.chmod(0o755)
    seen = []

    def run(patched: Path, words: list[str], environment: dict[str, str], *_: object) -> int:
        place = environment.pop("LD_LIBRARY_PATH").split(":")[0]
        command = [*emulator, "-E", f"LD_LIBRARY_PATH={place}", str(patched)]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        seen.append((done.returncode, done.stdout))
        return done.returncode

    for tracer, options in (
        ("function_graph", ()),
        ("function_graph", ("--args",)),
        ("function", ()),
        ("function_profile", ()),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ftpatch.tracer.run.execute", run)
            patch.setattr("ftpatch.image.needed.linker_of", lambda _: str(linker))
            result = ftpatch(
                "trace", "--lib", "libshared*", "--tracer", tracer, *options, str(program)
            )
        assert seen.pop() == (plain.returncode, plain.stdout), (tracer, options)
        assert "not traced" not in result.err, result.err
        assert "main" in result.out and "through" in result.out and "0x4" not in result.err
        if suffix == "c" and tracer == "function_graph" and not options:
            graph = [line.split("|", 1)[1][2:] for line in result.out.splitlines() if ") " in line]
            assert graph[:7] == [
                "main() {",
                "  through() {",
                "    again() {",
                "      through() {",
                "        own();",
                "        leaf();",
                "      } /* through */",
            ]
