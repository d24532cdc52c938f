# SPDX-License-Identifier: MIT
"""Pages that ftpatch writes: the data in them, and a browser without a window that shows them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch

__all__ = ["Browser", "browser", "data_of", "needs_browser", "write_page"]

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not CHROMIUM or not DRIVER, reason="chromium and chromium-driver are not installed"
)
KEYS = {
    "up": "\ue013",
    "down": "\ue015",
    "left": "\ue012",
    "right": "\ue014",
    "enter": "\ue007",
    "escape": "\ue00c",
    "tab": "\ue004",
    "end": "\ue010",
    "home": "\ue011",
    "space": "\ue00d",
}
"""Keys by WebDriver's numbers (W3C WebDriver, Keyboard actions)."""
Data = dict[str, Any]


def data_of(page: str) -> Data:
    """The data of a page."""
    data: Data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    return data


def write_page(trace: Path, *words: str, form: str = "html") -> Path:
    """Write a page beside a trace."""
    out = trace.with_suffix(f".{form}.html")
    done = ftpatch("report", trace, "--format", form, "-o", out, "--force", *words)
    assert done.code == 0, done.err
    return out


class Browser:
    """Chromium as its own driver moves it."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - selenium's, which may be missing
        self.driver = driver

    def open(self, page: Path, view: str = "") -> None:
        """Load a page with a view behind its #."""
        self.driver.get("about:blank")
        self.driver.get(page.as_uri() + view)

    def run(self, script: str) -> Any:  # noqa: ANN401 - whatever the script returns
        """Return what an expression is in the page."""
        return self.driver.execute_script(f"return {script}")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        self.driver.execute_async_script(
            f"const done = arguments[0], again = () => ({script}) ? done() : setTimeout(again, 20);"
            "again();"
        )

    def click(self, selector: str) -> None:
        """Click on the element that a CSS selector finds."""
        self.driver.find_element("css selector", selector).click()

    def press(self, *keys: str) -> None:
        """Press keys where the focus is: names of KEYS, or text."""
        self.driver.switch_to.active_element.send_keys(*(KEYS.get(key, key) for key in keys))

    def texts(self, selector: str) -> list[str]:
        """The texts of elements."""
        found: list[str] = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.textContent)"
        )
        return found

    def text(self, selector: str) -> str:
        """The text of an element."""
        (found,) = self.texts(selector)
        return found

    @property
    def focused(self) -> str:
        """What has the focus: its label, or its id and text."""
        found: str = self.run(
            "(one => one.title || one.id || one.textContent)(document.activeElement)"
        )
        return found

    def boxes(self, kind: str = "") -> list[str]:
        """Names of the flame graph's boxes."""
        found: list[str] = self.run(
            f"[...document.querySelectorAll('#graph div{kind}')].map(one => one.title)"
        )
        return found

    def errors(self) -> list[str]:
        """What the console complained about."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start and end a browser."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    # Tests run as root, in containers with little /dev/shm.
    for word in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1200,900"):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(20)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
