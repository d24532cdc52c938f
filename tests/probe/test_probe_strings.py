# SPDX-License-Identifier: MIT
"""Strings of every length around what an event holds: those that go on are marked, no others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
SOURCE = """
#include <string.h>
#include <sys/mman.h>
__attribute__((noinline)) void say(const char *text)
{
	__asm__ volatile("" : : "r"(text) : "memory");
}
int main(void)
{
	enum { BOTH = PROT_READ | PROT_WRITE };
	char text[80], *page = mmap(0, 8192, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int n = 61; n < 67; n++) {
		memset(text, 'a', n);
		text[n] = 0;
		say(text);
	}
	munmap(page + 4096, 4096); /* what ends with the page, and what goes on behind it */
	memset(page, 'b', 4096);
	say(page + 4096 - 63);
	say(page + 4096 - 62);
	page[4095] = 0;
	say(page + 4096 - 64);
	return 0;
}
"""


def test_only_what_goes_on_is_cut(tmp_path: Path) -> None:
    (tmp_path / "say.c").write_text(SOURCE)
    program, trace = tmp_path / "say", tmp_path / "trace"
    subprocess.run(["gcc", "-O1", str(tmp_path / "say.c"), "-o", str(program)], check=True)
    done = ftpatch("probe", program, "p say text=+0($arg1):string", "-o", tmp_path / "say.p")
    assert done.code == 0, done.err
    environment = {**os.environ, "FTPATCH_TRACE": str(trace)}
    subprocess.run([str(tmp_path / "say.p")], env=environment, check=True)
    events = [json.loads(line) for line in ftpatch("report", "--json", trace).out.splitlines()]
    hits = [event for event in events if "values" in event]
    found = [(event["values"]["text"], event.get("cut", [])) for event in hits]
    whole: list[tuple[str | None, list[str]]] = [("a" * n, []) for n in (61, 62, 63)]
    assert found == [
        *whole,
        *[("a" * 63, ["text"])] * 3,
        ("b" * 63, ["text"]),
        (None, []),
        ("b" * 63, []),
    ]
    text = ftpatch("report", trace).out
    assert text.count("...") == 4, text
