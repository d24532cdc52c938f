# SPDX-License-Identifier: MIT
"""What calls of a kernel module can go to: SYMBOL of --to, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.elf_writer import Section, Symbol
from tests.support.loose_forms import FORMS
from tests.support.loose_images import FUNCTIONS, PLACES, STEP, module, put, section_of
from tests.support.loose_reader import read_loose

every_form = pytest.mark.parametrize("name", FORMS)


@every_form
def test_without_a_callee(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    result = ftpatch("enable", path)
    assert result.code == 2
    assert "this image has no ftrace_caller; use --to SYMBOL" in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"]


@every_form
def test_a_module_with_a_caller_of_its_own(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    image = module(form, [*FUNCTIONS, ("ftrace_caller", ".text")])
    path = put(image, tmp_path)
    few = ["-n", "ftrace_caller"]
    row = ftpatch("enable", "--in-place", "--json", path, *few).only
    assert row["changed"] == 6 and "undefined" not in row
    assert read_loose(path).calls(form, "ftrace_caller", *PLACES.values())


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("0x40", "a relocatable file has no addresses; use a symbol"),
        ("0xffffffff81000000", "a relocatable file has no addresses"),
        ("a b", "invalid symbol name"),
        ("-f", "invalid symbol name"),
        ("1st", "invalid symbol name"),
        ("x" * 1025, "invalid symbol name"),
        ("twice", "symbol 'twice' is ambiguous (2 definitions)"),
        ("data", "is not code"),
        ("resolver", "is not a function that can be called directly"),
    ],
)
@every_form
def test_what_is_no_callee(name: str, to: str, words: str, tmp_path: Path) -> None:
    image = module(FORMS[name])
    image.sections.append(Section(".data", bytes(64), flags=3))
    image.symbols += [
        Symbol("twice", 0, 4, 2, 0, ".text"),
        Symbol("twice", 8, 4, 2, 0, ".text"),
        Symbol("data", 8, 8, 1, 1, ".data"),
        Symbol("resolver", 16, 8, 10, 1, ".text"),
    ]
    path = put(image, tmp_path)
    result = ftpatch("enable", path, f"--to={to}")
    assert result.code == 2 and words in result.err and result.err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"]


@pytest.mark.parametrize("to", ["ftrace_caller", "ftrace_regs_caller", "other_symbol"])
def test_what_must_be_defined_elsewhere_is_said(to: str, tmp_path: Path) -> None:
    path = put(module(FORMS["x86_64"]), tmp_path)
    result = ftpatch("enable", path, "--to", to)
    if to.startswith("ftrace"):
        assert f"{to}: not exported to modules, so insmod will fail (Unknown" in result.out
    else:
        assert f"{to} is undefined: the kernel or another module must" in result.out


@pytest.mark.parametrize("name", ["x86_64", "arm64-ops"])
def test_an_object_keeps_its_records(name: str, tmp_path: Path) -> None:
    """No kernel reads them."""
    form = FORMS[name]
    path = put(module(form, name=""), tmp_path)
    row = ftpatch("enable", "--in-place", "--json", path, "--to", "mine").only
    assert (row["changed"], row["dropped"]) == (6, 0)
    assert len(read_loose(path).records(form.table)) == 6


@every_form
def test_kept_records_and_what_comes_of_it(name: str, tmp_path: Path) -> None:
    """x86 compares the whole call, arm64 the NOP before it (and shows what is at ip); riscv64
    compares nothing, and makes a NOP of the call. Where a call goes only the loader knows."""
    form = FORMS[name]
    path = put(module(form), tmp_path)
    few = ["-f", "set_up", "--keep-records"]
    assert ftpatch("enable", "--in-place", path, "--to", "printk", *few).code == 0
    assert len(read_loose(path).records(form.table)) == 6
    result = ftpatch("check", "--json", path)
    assert result.code == 1
    (row,) = result.json
    if form.arch == "riscv64":
        assert "ftrace_init turns this call into a NOP" in row["message"] and "bug" not in row
        return
    shown = [" actual:   e8:??:??:??:??", " expected: e8:??:??:??:??"]
    if form.arch == "arm64":
        shown = [" actual:   ??:??:??:??"]
    assert row["bug"].splitlines() == [
        "------------[ ftrace bug ]------------",
        "ftrace failed to modify",
        f"[<.init.text+{form.before + form.lead:#x}>] set_up+{form.lead:#x}/0x30 [demo]",
        *shown,
        "Initializing ftrace call sites",
    ]


@pytest.mark.parametrize("to", ["f", "printk", "new_one"])
def test_named_sites_are_kernels(to: str, tmp_path: Path) -> None:
    """What they call is nothing that a loader resolves."""
    functions = [(name, ".text") for name in ("ftrace_call", "ftrace_stub", "f")]
    image = module(FORMS["x86_64"], functions)
    image.rows[".text"] = image.rows[".text"][1:]
    text = section_of(image, ".text")
    text.data = b"\xe8" + (STEP - 5).to_bytes(4, "little") + text.data[5:]  # call ftrace_stub
    result = ftpatch("enable", put(image, tmp_path), "--site", "ftrace_call", "--to", to)
    assert result.code == 2 and result.err.count("\n") == 1
