# SPDX-License-Identifier: MIT
"""The programs of tests/programs with a return probe on each of their functions."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.command import ftpatch
from tests.support.tracer_programs import ARCHES, Form, Outcome, build, run

__all__ = ["built", "functions", "otherwise", "probed"]


def built(form: Form, name: str, folder: Path) -> Path:
    """The program; its object is beside it."""
    return build(form, name, folder)


def functions(program: Path, arch: str) -> list[str]:
    """Names of the functions that its own source defines, each once."""
    prefix = ARCHES[arch].gcc.removesuffix("gcc")
    nm = shutil.which(f"{prefix}nm") or "nm"
    part = program.with_name(f"{program.name}.o")
    done = subprocess.run([nm, str(part)], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    names = [row[-1] for row in rows if row[-2] in "tTwW"]
    parts = (".cold", ".part.", ".constprop.", ".isra.", ".lto_priv")
    return sorted({name for name in names if not any(part in name for part in parts)})


def probed(program: Path, names: Sequence[str], *options: str) -> Path:
    """The program with a return probe on each of these functions, beside it; functions that cannot
    be probed there are left out."""
    target = program.with_name(f"{program.name}.probed")
    left = list(names)
    while left:
        probes = [f"r:p{number} {name} $retval" for number, name in enumerate(left)]
        done = ftpatch("probe", program, *probes, "-o", target, "--force", *options)
        if done.code == 0:
            break
        wrong = [name for name in left if f"{name!r}" in done.err]
        number = next((n for n in range(len(left)) if f" p{n}: " in done.err), None)
        assert wrong or number is not None, done.err
        left = [name for n, name in enumerate(left) if name not in wrong and n != number]
    assert left
    return target


def otherwise(
    program: Path, runs: Sequence[Sequence[str]], arch: str, options: Sequence[str]
) -> list[str]:
    """What the program does otherwise with probes than without, for each of these arguments."""
    found = []
    target = probed(program, functions(program, arch), *options)

    def done(what: Path, args: Sequence[str]) -> Outcome:
        with tempfile.TemporaryDirectory(dir=program.parent, prefix="run-") as room:
            return run(what, args, cwd=Path(room), arch=arch)

    for args in runs:
        expected, got = done(program, args), done(target, args)
        assert b".c" not in expected.out, f"the program's own check: {expected}"
        assert expected.status not in (-signal.SIGSEGV, -signal.SIGBUS), str(expected)
        if (got.out, got.status) != (expected.out, expected.status):
            found.append(f"{options} {args}: {expected}, and probed {got} {got.err[-200:]!r}")
    return found
