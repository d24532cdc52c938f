#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the pictures of docs/: what `ftpatch report` shows of a traced program, on a terminal, by
chromium as a page, and in KernelShark's window.

pictures.py FOLDER

It needs gcc, chromium, kernelshark, xvfb, xdotool and imagemagick.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZE = (88, 20)
PROGRAM = r"""
#include <stdlib.h>
#include <string.h>

struct node { struct node *left, *right; char key[16]; };

static struct node *new_node(const char *key)
{
	struct node *made = calloc(1, sizeof(*made));

	strncpy(made->key, key, sizeof(made->key) - 1);
	return made;
}

static int compare(const char *a, const char *b)
{
	return strcmp(a, b);
}

static void insert(struct node **at, const char *key)
{
	while (*at) {
		int order = compare(key, (*at)->key);

		if (!order)
			return;
		at = order < 0 ? &(*at)->left : &(*at)->right;
	}
	*at = new_node(key);
}

static int depth(const struct node *at)
{
	int left, right;

	if (!at)
		return 0;
	left = depth(at->left);
	right = depth(at->right);
	return 1 + (left > right ? left : right);
}

static void random_key(char *key)
{
	for (int i = 0; i < 6; i++)
		key[i] = 'a' + rand() % 26;
	key[6] = 0;
}

static void build(struct node **root)
{
	char key[16];

	for (int i = 0; i < 500; i++) {
		random_key(key);
		insert(root, key);
	}
}

int main(void)
{
	struct node *root = NULL;

	build(&root);
	return depth(root) == 0;
}
"""
KEYS = {
    "functions": ("down", "down"),
    "callers": ("o", "home", "down", "down", "enter"),
    "time-line": ("o", "home", "down", "l"),
}
"""The picture of each view, and the keys that lead to it from the functions."""
WINDOW = ("1100", "620")
"""KernelShark's."""
DRAWN = 3
"""Seconds after which it has drawn a window of another size."""


def main(folder: Path) -> None:
    """Trace a program, walk through the recording, and draw each view."""
    folder = folder.absolute()
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        (here / "tree.c").write_text(PROGRAM)
        flags = ["-O1", "-g", "-fno-inline", "-fpatchable-function-entry=5"]
        subprocess.run(["gcc", *flags, "tree.c", "-o", "tree"], cwd=here, check=True)
        command = [sys.executable, "-m", "ftpatch", "trace", "-o", "tree.trace", "./tree"]
        subprocess.run(command, cwd=here, check=True, stdout=subprocess.DEVNULL)
        for name, keys in KEYS.items():
            drawn = asyncio.run(_picture(here / "tree.trace", keys))
            (folder / f"report-{name}.svg").write_text(drawn)
        _page(here / "tree.trace", here, folder / "report-html.png")
        _kernelshark(here / "tree.trace", here, folder / "report-kernelshark.png")


def _page(trace: Path, here: Path, picture: Path) -> None:
    """Show the page of a recording in a browser without a window, and keep what it shows."""
    page = here / "page.html"
    words = ["report", str(trace), "--format", "html", "-o", str(page)]
    subprocess.run([sys.executable, "-m", "ftpatch", *words], check=True)
    browser = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"]
    options = ["--window-size=1100,560", "--virtual-time-budget=3000", f"--screenshot={picture}"]
    subprocess.run([*browser, *options, page.as_uri()], check=True, stderr=subprocess.DEVNULL)


def _kernelshark(trace: Path, here: Path, picture: Path) -> None:
    """Show a recording in KernelShark, on a screen that nobody sees, and keep its window."""
    file = here / "tree.dat"
    words = ["report", str(trace), "--format", "trace-dat", "-o", str(file)]
    subprocess.run([sys.executable, "-m", "ftpatch", *words], check=True)
    (here / "setting.ini").write_text("[General]\nnoRootWarn=true\n")
    screen = ["Xvfb", "-displayfd", "1", "-screen", "0", "1280x800x24"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(screen, stdout=subprocess.PIPE, stderr=quiet, text=True) as server:
        try:
            assert server.stdout is not None
            display = f":{server.stdout.readline().strip()}"
            alone = {"DISPLAY": display, "HOME": str(here), "KS_USER_CACHE_DIR": str(here)}
            environment, command = os.environ | alone, ["kernelshark", file.name]
            with subprocess.Popen(
                command, cwd=here, env=environment, stdout=quiet, stderr=quiet
            ) as shown:
                try:
                    _window(environment, file.name, picture)
                finally:
                    shown.terminate()
        finally:
            server.terminate()


def _window(environment: dict[str, str], title: str, picture: Path) -> None:
    """Wait for the window with this title, and keep what it shows."""
    find = ["timeout", "60", "xdotool", "search", "--sync", "--name", title]
    found = subprocess.run(find, env=environment, check=True, capture_output=True, text=True)
    window = found.stdout.split()[0]
    place = ["windowmove", "--sync", window, "0", "0", "windowsize", "--sync", window, *WINDOW]
    subprocess.run(["timeout", "60", "xdotool", *place], env=environment, check=True)
    time.sleep(DRAWN)
    subprocess.run(["import", "-window", window, str(picture)], env=environment, check=True)
    subprocess.run(["mogrify", "-strip", "+dither", "-colors", "64", str(picture)], check=True)


async def _picture(trace: Path, keys: tuple[str, ...]) -> str:
    from ftpatch.api.report_programs import Programs
    from ftpatch.api.report_sources import open_events
    from ftpatch.cli.console import clean, error_line
    from ftpatch.cli.report_walk import recorded
    from ftpatch.cli.tui.app import Walk
    from ftpatch.trace import Style
    from ftpatch.trace.window import Window

    events = open_events([trace], Window())
    try:
        events.recording.name_by(Programs(None, tell=error_line).of)
        app = Walk(recorded(events, Style(clean)))
        async with app.run_test(size=SIZE) as pilot:
            for key in keys:
                await pilot.press(key)
                await app.workers.wait_for_complete()
                await pilot.pause()
            await pilot.pause(0.5)  # until the keys at the bottom are drawn
            return app.export_screenshot(title=f"ftpatch report {trace.name}")
    finally:
        events.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
