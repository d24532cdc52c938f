# SPDX-License-Identifier: MIT
"""Programs that nobody here wrote, with the tests that they bring, which they pass when traced.

From Debian's source packages. Skipped where those cannot be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.sources import FetchError, source
from tests.support.trace_events import PROFILE, read_trace

PAD = "-fpatchable-function-entry=5"
READ = 40
"""Trace files that are read, at most."""
LIMIT = 1800
"""Seconds for one command."""


@dataclass(frozen=True)
class Suite:
    """A source package. ``build`` makes ``programs``, with pads, and ``test`` runs its tests on
    them; both are for sh. ``needs``: programs and headers without which it is not built; ``least``:
    calls that its tests come to; ``size``: of trace files."""

    package: str
    build: str
    programs: tuple[str, ...]
    test: str
    least: int
    needs: tuple[str, ...] = ()
    size: str = "64M"


pytestmark = pytest.mark.skipif(
    "FTPATCH_SOURCES" not in os.environ, reason="fetches and builds: `make test-programs`"
)

SUITES = {
    suite.package: suite
    for suite in (
        Suite(
            "zlib",
            f"CFLAGS='-O2 {PAD}' ./configure --static && make -j2 static",
            ("example", "minigzip"),
            "make -s teststatic",
            1000,
        ),
        Suite(
            "bzip2",
            f"make CFLAGS='-O2 {PAD} -D_FILE_OFFSET_BITS=64' bzip2",
            ("bzip2",),
            # What `make test` does, without the words around it.
            "for n in 1 2 3; do"
            "  ./bzip2 -$n < sample$n.ref > made$n.bz2 && cmp sample$n.bz2 made$n.bz2;"
            "  ./bzip2 -d < sample$n.bz2 | cmp - sample$n.ref || exit 1;"
            "done; ./bzip2 -dc sample3.bz2 | sha256sum",
            50,
        ),
        # C++: exceptions, and setjmp in the tests' own framework. gcc 12 and GNU ld cannot link
        # pads of functions that several objects have.
        Suite(
            "pugixml",
            f"make -j2 config=debug CXX=clang++ CXXFLAGS='{PAD} -O1'"
            " && cp build/make-clang++-debug-standard-c++11/test suite",
            ("suite",),
            "./suite",
            100000,
            ("clang++",),
        ),
        # Threads, and over a hundred processes.
        Suite(
            "xz-utils",
            f"./configure -q --disable-shared --disable-nls --disable-doc CFLAGS='-O1 {PAD}'"
            " && make -s -j2 && make -s -C tests check TESTS=",
            ("src/xz/xz", "src/xzdec/xzdec", "tests/test_check", "tests/test_index"),
            "make -s check 2>&1 | grep -E '^(PASS|FAIL|SKIP|ERROR|# )';"
            "for t in 1 4; do ./src/xz/xz -T$t --block-size=64KiB -c configure |"
            "  ./src/xz/xz -T$t -dc | cmp - configure || exit 1; done",
            1000,
            size="8M",
        ),
    )
}


def _shell(command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", command],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.fixture(scope="module", params=SUITES)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Suite, Path]:
    suite = SUITES[request.param]
    for needed in ("gcc", "make", "dpkg-source", *suite.needs):
        if not (shutil.which(needed) or Path(needed).is_file()):
            pytest.skip(f"{needed} is not there")
    folder = tmp_path_factory.mktemp("real") / suite.package
    try:
        source(suite.package, folder)
    except FetchError as error:
        pytest.skip(str(error))
    done = _shell(suite.build, folder)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    for name in suite.programs:
        shutil.copy2(folder / name, folder / f"{name}.plain")
    return suite, folder


@pytest.mark.parametrize("tracer", ["function_graph", "function_profile", "function", "nop"])
def test_it_passes_its_own_tests(built: tuple[Suite, Path], tracer: str, tmp_path: Path) -> None:
    suite, folder = built
    for name in suite.programs:
        shutil.copy2(folder / f"{name}.plain", folder / name)
    plain = _shell(suite.test, folder)
    assert plain.returncode == 0, plain.stdout[-1000:] + plain.stderr[-1000:]
    for name in suite.programs:
        program, kept = folder / name, folder / f"{name}.plain"
        program.unlink()
        done = ftpatch("enable", kept, "--tracer", tracer, "-o", program)
        assert done.code == 0, done.err
    env = {"FTPATCH_TRACE": str(tmp_path / "suite.trace"), "FTPATCH_TRACE_SIZE": suite.size}
    got = _shell(suite.test, folder, **env)
    assert (got.returncode, got.stdout) == (0, plain.stdout), got.stderr[-1000:]
    traces = [read_trace(path) for path in sorted(tmp_path.glob("suite.trace*"))[:READ]]
    calls = sum(len(thread.events) for trace in traces for thread in trace.threads)
    hits = sum(entry[0] for trace in traces for entry in trace.profile.values())
    if tracer == "nop":
        assert not traces
    else:
        assert (hits if traces[0].tracer == PROFILE else calls) > suite.least
        assert not any(trace.lost["nested"] or trace.lost["thread"] for trace in traces)
