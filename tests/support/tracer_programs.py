# SPDX-License-Identifier: MIT
"""The programs of tests/programs, built in every form, and run with and without a tracer."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.cross_root import CROSS, cross_folder, use_cross_root
from tests.support.gnu import i386_libraries, runner

__all__ = [
    "ARCHES",
    "LINKS",
    "REGISTERED",
    "SOURCES",
    "TRACERS",
    "Form",
    "Outcome",
    "build",
    "differences",
    "emulator",
    "libraries",
    "run",
    "traced",
]

SOURCES = Path(__file__).parent.parent / "programs"
STUBS = Path(__file__).parent.parent.parent / "stubs" / "built"
TRACERS = ("function_graph", "function", "function_profile", "nop")
SIZE = "16M"
"""Of trace files: where one is full nothing is hooked any more, and nothing is tested."""
SHOWN = 400
"""Characters of an output, in a message."""


@dataclass(frozen=True)
class Arch:
    """How programs of an architecture are made; an entry here is all that tests need of one.
    ``pad``: what asks for pads; ``fentry``: whether -mfentry is there; ``root``: where libraries
    are, for qemu; ``loader``: where that is not the one that programs name by themselves;
    ``flags``: what the compiler needs besides."""

    gcc: str
    gxx: str
    pad: str
    fentry: bool
    root: str = ""
    loader: str = ""
    flags: tuple[str, ...] = ()


ARCHES = {
    "x86_64": Arch("gcc", "g++", "-fpatchable-function-entry=5", fentry=True),
    "i386": Arch(
        "i686-linux-gnu-gcc",
        "i686-linux-gnu-g++",
        "-fpatchable-function-entry=5",
        fentry=True,
        root="/usr/i686-linux-gnu",
        loader="ld-linux.so.2",
    ),
    "arm64": Arch(
        "aarch64-linux-gnu-gcc",
        "aarch64-linux-gnu-g++",
        "-fpatchable-function-entry=2",
        fentry=False,
        root="/usr/aarch64-linux-gnu",
    ),
    "riscv64": Arch(
        "riscv64-linux-gnu-gcc",
        "riscv64-linux-gnu-g++",
        "-fpatchable-function-entry=4",
        fentry=False,
        root="/usr/riscv64-linux-gnu",
    ),
    "ppc64le": Arch(
        "powerpc64le-linux-gnu-gcc",
        "powerpc64le-linux-gnu-g++",
        "-fpatchable-function-entry=2",
        fentry=False,
        root="/usr/powerpc64le-linux-gnu",
        flags=(f"-B{Path(__file__).parent / 'ppc64le'}",),
    ),
    "arm": Arch(
        "arm-linux-gnueabihf-gcc",
        "arm-linux-gnueabihf-g++",
        "-fpatchable-function-entry=3",
        fentry=False,
        root="/usr/arm-linux-gnueabihf",
        flags=(f"-B{Path(__file__).parent / 'arm'}",),
    ),
    "s390x": Arch(
        "s390x-linux-gnu-gcc",
        "s390x-linux-gnu-g++",
        "-fpatchable-function-entry=3",
        fentry=True,
        root="/usr/s390x-linux-gnu",
    ),
    "loongarch64": Arch(
        "loongarch64-linux-gnu-gcc",
        "loongarch64-linux-gnu-g++",
        "-fpatchable-function-entry=2",
        fentry=False,
        root=str(cross_folder("loongarch64")),
    ),
}
REGISTERED = [arch for arch in ARCHES if (STUBS / arch / "user_regs.elf").is_file()]
"""Architectures on which a user's stub may take registers."""
LINKS = {
    "static": ("-static", "-fno-pie"),
    "pie": ("-pie", "-fPIE"),
    "no-pie": ("-no-pie", "-fno-pie"),
    "static-pie": ("-static-pie", "-fPIE"),
}


@dataclass(frozen=True)
class Form:
    """A way to build a program. ``site`` is pad, fentry or none: then the source asks for pads."""

    arch: str = "x86_64"
    link: str = "pie"
    level: str = "-O2"
    site: str = "pad"
    compiler: str = "gcc"
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = (self.arch, self.compiler, self.link, self.level[1:], self.site, *self.more)
        return "-".join(words)

    def command(self, source: Path) -> list[str]:
        """The compiler with all flags; skips where there is none."""
        arch = ARCHES[self.arch]
        plus = source.suffix == ".cpp"
        name = arch.gxx if plus else arch.gcc
        if self.compiler == "clang":
            name = "clang++" if plus else "clang"
        if self.arch in CROSS:
            use_cross_root(self.arch)
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
        if self.site == "fentry" and not arch.fentry:
            pytest.skip(f"{self.arch} has no -mfentry")
        sites = {
            "pad": [arch.pad],
            "fentry": ["-pg", "-mfentry", "-mrecord-mcount"],
            "none": [],
        }[self.site]
        early = ["-DNO_PREINIT"] if self.link == "static-pie" else []
        words = [self.level, "-w", *arch.flags, LINKS[self.link][1], *sites, *early]
        return [name, *words, *self.more]


def libraries(form: Form, *, plus: bool) -> list[str]:
    """What makes a program find the libraries of its cross compiler where it runs natively."""
    arch = ARCHES[form.arch]
    if not arch.loader or "static" in form.link:
        return []
    folder = f"{arch.root}/lib"
    loader = f"-Wl,--dynamic-linker={folder}/{arch.loader},-rpath={folder}"
    return [loader, *i386_libraries(plus=plus)]


def build(form: Form, name: str, folder: Path) -> Path:
    """Compile and link a program; skips where the compiler cannot, with its reason."""
    if not (STUBS / form.arch).is_dir():
        pytest.skip(f"stubs/built/{form.arch} is not there")
    source = SOURCES / name
    program = folder / source.stem
    part = folder / f"{source.stem}.o"
    command = form.command(source)
    steps = [[*command, "-c", str(source), "-o", str(part)]]
    parts = [str(part)]
    if form.site == "fentry":
        parts.append(str(SOURCES / "fentry.S"))
    link = [
        LINKS[form.link][0],
        "-pthread",
        "-Wl,-z,execstack",
        *libraries(form, plus=source.suffix == ".cpp"),
    ]
    steps.append([command[0], *link, *parts, "-o", str(program)])
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = next((s for s in done.stderr.splitlines() if "error" in s or "sorry" in s), "")
            pytest.skip(reason or f"{step[0]} ended with {done.returncode}")
    return program


def traced(program: Path, tracer: str, *options: str) -> Path:
    """The program with a tracer, by name or by path, beside it; it has to be possible."""
    target = program.with_name(f"{program.name}.{Path(tracer).name}")
    done = ftpatch("enable", program, "--tracer", tracer, "-o", target, "--force", *options)
    assert done.code == 0, done.err
    return target


@dataclass(frozen=True)
class Outcome:
    """What a program printed, and how it ended: below zero by a signal."""

    out: bytes
    status: int
    err: bytes = b""

    def __str__(self) -> str:
        ended = signal.Signals(-self.status).name if self.status < 0 else str(self.status)
        shown = b" ".join(self.out.split(b"\n")).decode(errors="replace")
        return f"{ended}: {shown[:SHOWN]}"


def emulator(arch: str) -> list[str]:
    """What runs programs of an architecture, if they need anything."""
    prefix = runner(arch)
    return [*prefix, "-L", ARCHES[arch].root] if prefix else []


def _emulated(program: Path, place: Path, arch: str) -> list[str]:
    """The command for a program that needs an emulator, which runs it as ``place``: a script
    there starts the emulator again where the program executes itself."""
    prefix = emulator(arch)
    if not prefix:
        return []
    command = [*prefix, "-0", str(place), str(program)]
    place.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    place.chmod(0o755)
    return command


def run(
    program: Path,
    args: Sequence[str] = (),
    *,
    cwd: Path,
    arch: str = "x86_64",
    env: dict[str, str] | None = None,
) -> Outcome:
    """Run a program in a folder, for a while at most; it and its children are gone afterwards."""
    # Its own argv[0], by which it runs itself again, is the same whatever it is patched with.
    place = cwd / "program"
    place.unlink(missing_ok=True)
    command = _emulated(program, place, arch)
    if not command:
        os.link(program, place)
        command = [str(place)]
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        subprocess.Popen(
            [*command, *args],
            cwd=cwd,
            env={**os.environ, "FTPATCH_TRACE_SIZE": SIZE, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        ) as process,
    ):
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            pytest.fail(f"{program.name} {' '.join(args)}: no end after {PATIENCE} seconds")
        out.seek(0)
        err.seek(0)
        return Outcome(out.read(), process.returncode, err.read())


@contextmanager
def _room(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder, prefix="run-") as name:
        yield Path(name)


def differences(
    program: Path,
    runs: Sequence[Sequence[str]],
    tracers: Sequence[str] = TRACERS,
    *,
    arch: str = "x86_64",
    options: Sequence[str] = (),
) -> list[str]:
    """What the program does otherwise with a tracer than without, for each of these arguments."""
    found = []
    with _room(program.parent) as room:
        plain = [run(program, args, cwd=room, arch=arch) for args in runs]
    for expected in plain:
        assert b".c" not in expected.out, f"the program's own check: {expected}"
        assert expected.status not in (-signal.SIGSEGV, -signal.SIGBUS), str(expected)
    for tracer in tracers:
        patched = traced(program, tracer, *options)
        for args, expected in zip(runs, plain, strict=True):
            with _room(program.parent) as room:
                got = run(patched, args, cwd=room, arch=arch)
            if (got.out, got.status) != (expected.out, expected.status):
                words = " ".join(args)
                found.append(f"{tracer} {words}: {expected}, and traced {got} {got.err[-200:]!r}")
        patched.unlink()
    return found
