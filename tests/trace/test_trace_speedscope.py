# SPDX-License-Identifier: MIT
"""Chrome's format, read back by speedscope in a browser: every function with its total and own
time. (npm's package is fetched; what cannot be fetched is not tried.)"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.pages import Browser, browser, needs_browser
from tests.support.trace_writer import ENTRY, EXIT, Thread, TraceFile, program

pytestmark = [
    needs_browser,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]
PACKAGE = "speedscope@1.25.0"
PATIENCE = 60
CALLS = (
    (ENTRY, "main", 0),
    (ENTRY, "alloc", 100_000),
    (EXIT, "alloc", 300_000),
    (ENTRY, "walk", 400_000),
    (ENTRY, "alloc", 500_000),
    (ENTRY, "main", 550_000),
    (EXIT, "main", 600_000),
    (EXIT, "alloc", 700_000),
    (EXIT, "walk", 700_000),
    (EXIT, "main", 1_000_000),
)
"""With recursion, and two calls that end at one time."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """speedscope's page."""
    folder = tmp_path_factory.mktemp("speedscope")
    words = ["npm", "pack", "--silent", PACKAGE]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{PACKAGE} cannot be fetched")
    if done.returncode:
        pytest.skip(f"{PACKAGE} cannot be fetched")
    (packed,) = folder.glob("*.tgz")
    shutil.unpack_archive(packed, folder)
    return folder / "package/dist/release/index.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


def test_the_times_of_all_functions(reader: Path, chromium: Browser, tmp_path: Path) -> None:
    thread = Thread(1)
    for kind, name, ticks in CALLS:
        thread.add(kind, name, ticks)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog"))}
    trace, out = TraceFile([thread], header=header).write(tmp_path / "trace"), tmp_path / "out"
    assert ftpatch("report", trace, "--format", "chrome", "-o", out).code == 0
    held = base64.b64encode(out.read_bytes()).decode()
    script = tmp_path / "profile.js"
    script.write_text(f"speedscope.loadFileFromBase64('trace', '{held}')")
    chromium.open(reader, f"#localProfilePath={script}")
    chromium.wait("document.body.innerText.includes('(pid ')")
    chromium.driver.set_script_timeout(PATIENCE)
    chromium.wait(
        # The table, as its key 3 shows it; a page that is yet to listen for keys misses one.
        "document.body.innerText.includes('Symbol Name')"
        " || (window.dispatchEvent(new KeyboardEvent('keypress', {key: '3'})), false)"
    )
    table = chromium.run("document.body.innerText").partition("Symbol Name\n")[2]
    rows = re.findall(r"(\S+) \((\S+)%\)\s+(\S+) \((\S+)%\)\s+(\w+)", table)
    assert {row[-1]: row[:-1] for row in rows} == {
        "main": ("1.00ms", "100", "550.00µs", "55"),
        "walk": ("300.00µs", "30", "100.00µs", "10"),
        "alloc": ("400.00µs", "40", "350.00µs", "35"),
    }
