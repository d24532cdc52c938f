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
EDGES = """
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
static const char many[] = MANY;
__attribute__((noinline)) void say(const char *text)
{
	__asm__ volatile("" : : "r"(text) : "memory");
}
int main(void)
{
	enum { BOTH = PROT_READ | PROT_WRITE, MOST = 80 };
	char *page = mmap(0, 8192, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(page + 4096, 4096);
	for (int n = 0; n < MOST; n++) {
		memset(page, 'a' + n % 26, 4096);
		say(page + 4096 - n); /* goes on where nothing is */
		page[4095] = 0;
		say(page + 4095 - n);
		page[100 + n] = 0;
		say(page + 100); /* further bytes, which are not its own */
		say(many + n);
	}
	say((char *)8);
	say((char *)0x7fffffffffff);
	say((char *)-1);
	return 0;
}
"""
Said = tuple[str | None, list[str]]


def _said(folder: Path, source: str, *flags: str) -> list[Said]:
    """What say() was told, and whether it was cut."""
    (folder / "say.c").write_text(source)
    program, trace = folder / "say", folder / "trace"
    words = ["gcc", "-O1", *flags, str(folder / "say.c"), "-o", str(program)]
    subprocess.run(words, check=True)
    done = ftpatch("probe", program, "p say text=+0($arg1):string", "-o", folder / "say.p")
    assert done.code == 0, done.err
    environment = {**os.environ, "FTPATCH_TRACE": str(trace)}
    subprocess.run([str(folder / "say.p")], env=environment, check=True)
    events = [json.loads(line) for line in ftpatch("report", "--json", trace).out.splitlines()]
    hits = [event for event in events if "values" in event]
    return [(event["values"]["text"], event.get("cut", [])) for event in hits]


def _cut(text: str) -> Said:
    """A string as an event holds it."""
    return text[:63], ["text"] * (len(text) > 63)


@pytest.mark.parametrize("flags", [(), ("-no-pie",), ("-static",), ("-static-pie",)])
def test_at_every_distance_from_a_page_without_memory(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    many = "".join(chr(ord("A") + n % 26) for n in range(120))
    expected = list[Said]()
    for n in range(80):
        letter = chr(ord("a") + n % 26)
        expected.append((None, []) if n < 63 else (letter * 63, ["text"]))
        expected += [_cut(letter * n), _cut(letter * n), _cut(many[n:])]
    expected += [(None, [])] * 3
    assert _said(tmp_path, EDGES, *flags, f'-DMANY="{many}"') == expected


def test_only_what_goes_on_is_cut(tmp_path: Path) -> None:
    found, trace = _said(tmp_path, SOURCE), tmp_path / "trace"
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
