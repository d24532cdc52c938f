# SPDX-License-Identifier: MIT
"""What all tests share."""

from __future__ import annotations

import importlib
import re
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from tests.support.lost_traps import loses_traps
from tests.support.samples import FOLDER, sample
from tests.support.sampling import FUZZ, describe, scaled, split

# In full the same examples on every machine and in every run: a failure must be found by whoever
# looks. A sample draws fewer, and by its seed.
settings.register_profile(
    "ftpatch",
    max_examples=scaled(100, 25),
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
settings.load_profile("ftpatch")
MEASURED = "measured"
"""Property of a test whose values end up in the last lines of a run."""
LEFT_OUT = pytest.StashKey[int]()
WATCHES = re.compile(r"^tests/(?:watch|tracer/test_together|cli/test_pid_watch)|\[watches\.md\]")
"""Tests whose programs have breakpoints of the processor."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and give hypothesis the seed of what is drawn."""
    config.addinivalue_line("markers", "scaled: goes further in full than in a sample")
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(FUZZ)


@pytest.fixture(autouse=True, scope="session")
def heeded() -> None:
    """Let programs that tests start heed signals: who runs in the background of a shell, or under
    nohup, was started with these ignored, and hands that on."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_report_header() -> str:
    """Show what repeats this run."""
    return f"sample: {describe()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the sample does not take."""
    items[:], left_out = split(items, config.args)
    config.stash[LEFT_OUT] = len(left_out)
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what repeats it. Where the machine itself loses what breakpoints tell,
    failures of watches are expected."""
    report = yield
    if report.failed and WATCHES.search(item.nodeid) and loses_traps():
        report.outcome, report.wasxfail = "skipped", "this machine loses what breakpoints tell"
    elif report.failed:
        report.sections.append(("repeat with", describe()))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that started this worker, if it is one, how many tests were left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: SimpleNamespace) -> None:
    """Take what a worker tells."""
    left_out = getattr(node, "workeroutput", {}).get("left_out")
    if left_out is not None:
        node.config.stash[LEFT_OUT] = left_out


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what tests have measured, and how much the sample left out, where no one could take it
    for everything."""
    for report in (one for key in ("passed", "failed") for one in terminalreporter.getreports(key)):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == MEASURED:
                terminalreporter.write_line(str(value))
    left_out = config.stash.get(LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(f"{left_out} cases left out ({describe()})")


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[str], Path]:
    """Gives a copy of a sample in a folder of its own, to be written to."""

    def copied(name: str) -> Path:
        source = sample(name)
        target = tmp_path / name
        target.write_bytes(source.data)
        target.chmod(0o755)
        return target

    return copied


@pytest.fixture(scope="session")
def reader() -> ModuleType:
    """The reader that wrote the manifest, on pyelftools and Capstone: a script beside the samples,
    not a package."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("reader")
    finally:
        sys.path.remove(str(FOLDER))
