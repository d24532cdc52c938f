# SPDX-License-Identifier: MIT
"""How a run is spread over processes, and the table that it ends with."""

from __future__ import annotations

import pytest

from .cases import SEED
from .fetch import kernels
from .oracle import PROPERTY, Row, render

try:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]
except ImportError:  # one process
    LoadScopeScheduling = object


class KernelScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """All tests of a kernel go to one worker, so that files are patched and booted once; those of
    its modules, and of it broken, may go to others.

    (`--dist loadgroup` would be that, but pytest 9.2 lets no plugin mark a test's id.)
    """

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        self._names = sorted((k.name for k in kernels()), key=len, reverse=True)

    def _split_scope(self, nodeid: str) -> str:
        file, _, parameters = nodeid.partition("[")
        name = next((name for name in self._names if parameters.startswith(name)), parameters)
        part = "modules" if "module" in file else "broken" if "broken" in file else ""
        return f"{name} {part}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return KernelScheduling(config, log)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table, and keep it with pytest's own output."""
    rows = [
        Row(**value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", [])
        if name == PROPERTY and getattr(report, "when", "") == "call"
    ]
    if not rows:
        return
    lines = [*render(rows), f"seed of the random sites: FTPATCH_SEED={SEED}"]
    terminalreporter.section("check against the kernel")
    for line in lines:
        terminalreporter.write_line(line)
    if config.cache is not None:
        path = config.cache.mkdir(PROPERTY) / "table.txt"
        path.write_text("\n".join(lines) + "\n")
        terminalreporter.write_line(f"written to {path.relative_to(config.rootpath)}")
