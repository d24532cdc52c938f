# SPDX-License-Identifier: MIT
"""What is said of modules and of trees, at 80 columns: files in golden/, as in test_golden.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_golden import _same
from tests.support.command import ftpatch
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, put, section_of, signed
from tests.support.loose_trees import plant


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _module(name: str) -> Path:
    return put(module(FORMS[name]), Path(), f"{name}.ko")


def test_a_module() -> None:
    path = _module("x86_64")
    _same(
        "module",
        ftpatch("status", path),
        ftpatch("status", "-v", path),
        ftpatch("enable", path),
        ftpatch("enable", path, "--to", "ftrace_caller", "-f", "open_it"),
        ftpatch("list", "x86_64.ko.ftpatch"),
        ftpatch("diff", path),
        ftpatch("check", "x86_64.ko.ftpatch"),
        ftpatch("undo", "x86_64.ko.ftpatch"),
    )


def test_a_module_with_pads() -> None:
    path = _module("arm64-ops")
    _same(
        "module-pads",
        ftpatch("status", "-v", path),
        ftpatch("disable", path),
        ftpatch("enable", "--in-place", path, "--to", "my_tracer", "-f", "set_up"),
        ftpatch("diff", path),
        ftpatch("disable", "--in-place", path),
        ftpatch("undo", "--all", path),
    )


def test_what_is_refused() -> None:
    image = module(FORMS["x86_64"])
    Path("signed.ko").write_bytes(signed(image.build()))
    image.rows[".text"][0] = (1, 4, "printk", -4)
    text = section_of(image, ".init.text")
    text.data = b"\x90" + text.data[1:]
    path = put(image, Path(), "refused.ko")
    _same(
        "module-refused",
        ftpatch("disable", "signed.ko"),
        ftpatch("disable", path),
        ftpatch("check", path),
        ftpatch("enable", path, "--to", "0x40"),
        ftpatch("disable", path, "-f", "*:mod:other"),
    )


def test_a_tree() -> None:
    tree = plant(Path("tree"), sign="kernel/sound/fourth.ko.gz")
    results = [
        ftpatch("status", tree),
        ftpatch("disable", tree),
        ftpatch("disable", tree, "-o", "output"),
        ftpatch("disable", tree, "-o", "output", "--force", "--strip-signature", "-f", "*_it"),
        ftpatch("status", "output"),
        ftpatch("check", "output"),
        ftpatch("disable", "output", "--in-place", "-f", "nosuch"),
        ftpatch("enable", "output", "--in-place", "--to", "my_tracer", "-f", "once:mod:f*"),
        ftpatch("undo", "output"),
    ]
    for result in results:
        table = [text for text in result.out.splitlines() if text.startswith(("MODULE", "kernel"))]
        assert max(map(len, table), default=0) <= 80
    _same("module-tree", *results)


def test_a_bad_tree() -> None:
    tree = plant(Path("tree"))
    image = module(FORMS["x86_64"])
    text = section_of(image, ".text")
    text.data = b"\x0b" + text.data[1:]
    put(image, tree, "first.ko")
    (tree / "kernel/bad.ko.xz").write_bytes(b"bad")
    _same(
        "module-tree-bad",
        ftpatch("status", tree),
        ftpatch("disable", tree, "-o", "output"),
        ftpatch("enable", tree, "-o", "other"),
        ftpatch("undo", tree),
        ftpatch("status", tree / "empty"),
    )
