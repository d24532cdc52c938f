# SPDX-License-Identifier: MIT
"""Debian's modules, patched and loaded by Debian's kernels: do they load, run and trace.

The callee is a tracer in a module of its own (tracer.S) that counts its calls: a site that has been
enabled is run, its call goes where it should, and comes back.
"""

from __future__ import annotations

import pytest

from .modfile import unsigned
from .tracer import CALLEE
from .variants import CLOSED, COUNT, COUNT_AGAIN, PINGS, USES, Loaded

TAINT_WARN, TAINT_DIE, TAINT_UNSIGNED = 1 << 9, 1 << 7, 1 << 13
# Forced module, unsigned module: the tracer has no version of what it exports.
TAINT_OF_TEST = 1 << 1 | TAINT_UNSIGNED


def _of(loaded: Loaded, module: str = "dummy") -> list[str]:
    """The variants of a module that load."""
    rows = loaded.variants.items()
    return [name for name, v in rows if v.module == module and not v.fails]


def test_every_module_loads_and_goes(loaded: Loaded) -> None:
    for name, variant in loaded.variants.items():
        step = loaded.steps[name]
        if variant.fails:
            continue
        assert step.value("insmod") == "0", (name, step)
        assert not step.warnings, name
        assert step.ftrace_bug is None, name
        if variant.module != "ifb":
            assert step.value("rmmod") == "0", (name, step)
            taint = int(step.value("taint"))
            assert not taint & ~TAINT_OF_TEST, (name, taint)


def test_untouched_and_undone_modules_are_signed(loaded: Loaded) -> None:
    rows = loaded.variants.items()
    signed = [name for name, v in rows if not v.commands or "undo" in v.commands[-1]]
    assert {"original", "undone", "undone twice"} < set(signed)
    for name in signed:
        if loaded.variants[name].module == "ifb":
            continue
        assert loaded.steps[name].value("taint") == "0", name
        if not loaded.variants[name].compressed:
            module = loaded.tree.module(loaded.variants[name].module)
            assert loaded.files[name].read_bytes() == module
            assert len(unsigned(module)) < len(module)


def test_ftrace_knows_exactly_the_functions_that_were_not_dropped(loaded: Loaded) -> None:
    for name, variant in loaded.variants.items():
        if variant.fails or variant.module == "ifb":
            continue
        step = loaded.steps[name]
        assert set(step.values("listed")) == loaded.listed(name), name
        assert len(step.values("listed")) == len(loaded.listed(name)), name
    counts = {loaded.steps[name].value("functions") for name in (COUNT, COUNT_AGAIN)}
    assert len(counts) == 1, "unloading a module takes away what loading it brought"


def test_functions_run_and_only_known_ones_are_traced(loaded: Loaded) -> None:
    for name in _of(loaded):
        step, listed = loaded.steps[name], loaded.listed(name)
        assert step.value("sent") == str(PINGS), name
        traced = set(step.values("traced"))
        assert set(USES) & listed <= traced <= listed, name
        if "dummy_xmit" in listed:
            assert step.values("traced").count("dummy_xmit") == PINGS, name
    for name in [*_of(loaded, "veth"), *_of(loaded, "brd")]:
        assert loaded.steps[name].value("used") == "0", name
        traced, listed = set(loaded.steps[name].values("traced")), loaded.listed(name)
        assert traced <= listed, name
        assert bool(traced) == bool(listed), name


@pytest.fixture
def called(loaded: Loaded) -> Loaded:
    if loaded.tree.arch in CLOSED:
        pytest.skip(f"sites of {loaded.tree.arch} cannot call another module")
    return loaded


def test_enabled_sites_call_the_tracer(called: Loaded) -> None:
    loaded = called
    for name in ("one calls", *(["compressed"] if "compressed" in loaded.variants else [])):
        assert loaded.steps[name].value("calls") == str(PINGS), name
    for name in ("all call", "veth calls", "brd calls"):
        assert int(loaded.steps[name].value("calls")) > 0, name
    for name, variant in loaded.variants.items():
        counted = loaded.steps[name].values("calls")
        if counted and not any(CALLEE in words for words in variant.commands[-1:]):
            assert counted == ["0"], name


def test_a_symbol_that_no_one_exports_is_refused(called: Loaded) -> None:
    step = called.steps["unknown symbol"]
    assert step.value("insmod") != "0"
    assert "dummy: Unknown symbol ftrace_caller (err -2)" in step.log
