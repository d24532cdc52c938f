# SPDX-License-Identifier: MIT
"""The flame graph's script, run on a page of which only this much is there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.trace_naive import sums
from tests.support.trace_writer import ENTRY, EXIT, Thread, TraceFile, program

NODE = shutil.which("node")
PAGE = r"""
const made = [];
class Element {
  constructor() { this.style = {}; this.kinds = []; this.children = []; this.textContent = "";
    this.clientWidth = 1000; this.value = "";
    this.classList = { add: (kind) => this.kinds.push(kind) }; }
  append(child) { this.children.push(child); }
  replaceChildren(all) { this.children = all.children; }
}
const held = {};
globalThis.window = {};
globalThis.document = {
  getElementById: (id) => held[id] ??= new Element(),
  createElement: () => new Element(),
  createDocumentFragment: () => new Element(),
};
held.data = new Element();
held.data.textContent = require("fs").readFileSync(process.argv[2], "utf8");
const shown = () => ({ notes: held.notes.textContent, boxes: held.graph.children.map((box) =>
  ({ label: box.textContent, title: box.title, outer: box.kinds.includes("outer") })) });
SCRIPT
const out = [shown()];
held.graph.children.find((box) => box.title === process.argv[3]).onclick();
out.push(shown());
console.log(JSON.stringify(out));
"""
LONG = "shop::Cart<std::string, std::allocator<std::string> >::add(int)"
NAMES = ("main", LONG, "read_line", "walk", "alloc", "hash", "print_all", "fail")


def _drawn(page: str, click: str, folder: Path) -> list[dict[str, Any]]:
    """What is drawn and said at first, and once a box is clicked."""
    (folder / "data.json").write_text(page.split('id="data">')[1].split("</script>")[0])
    script = page.split("<script>")[1].split("</script>")[0].replace('"use strict";', "")
    (folder / "page.js").write_text(PAGE.replace("SCRIPT", script))
    words = ["node", str(folder / "page.js"), str(folder / "data.json"), click]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    told: list[dict[str, Any]] = json.loads(done.stdout)
    return told


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_what_is_too_narrow_is_counted(tmp_path: Path) -> None:
    thread = Thread(1).add(ENTRY, "main", 0).add(ENTRY, "parse", 1000)
    for name in ("read_line", "walk", "alloc"):  # in the page, but less than a pixel
        thread.add(ENTRY, name, 2000).add(EXIT, name, 2300)
    thread.add(EXIT, "parse", 900_000).add(ENTRY, "walk", 900_000)
    for name in ("hash", "fail", "print_all"):  # not even in the page
        thread.add(ENTRY, name, 950_000).add(ENTRY, "alloc", 950_005).add(EXIT, "alloc", 950_010)
        thread.add(EXIT, name, 950_020)
    thread.add(EXIT, "walk", 1_500_000).add(ENTRY, "hash", 1_600_000).add(EXIT, "hash", 1_600_010)
    thread.add(EXIT, "main", 2_000_000)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog", NAMES))}
    trace = TraceFile([thread], header=header).write(tmp_path / "trace")
    page = ftpatch("report", trace, "--format", "flamegraph").out
    whole, walk = _drawn(page, "walk", tmp_path)
    every = sums(thread.events)[1]
    assert [box["title"] for box in whole["boxes"]] == ["main", LONG, "walk"]
    assert whole["notes"] == f"{len(every) - 3} stacks too narrow to draw"
    assert [box["title"] for box in walk["boxes"]] == ["main", "walk"]
    below = sum(1 for way in every if len(way) > 2 and way[1] == 3 * 0x20 + 5)
    assert below == 6 and walk["notes"] == "6 stacks too narrow to draw"
    labels = [box["label"] for box in whole["boxes"]]
    assert labels == ["main", "shop::Cart<…>::add(int)", "walk"]
    assert "text-overflow: ellipsis" in page
    for names, note in ((["main", "read_line"], "1 stack too narrow to draw"), (["main"], "")):
        words = [word for name in names for word in ("-f", name)]
        page = ftpatch("report", trace, "--format", "flamegraph", *words).out
        assert [told["notes"] for told in _drawn(page, "main", tmp_path)] == [note, note]
