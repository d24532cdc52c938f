"""A traced program does what it did: the same output and the same status, in every form.

The whole product of forms for the programs that take no time, and for the others a sample of it,
always the same one.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from .tracer_programs import ARCHES, Form, build, differences

SEED = 5
LEVELS = ("-O0", "-O2", "-O3")
SITES = ("pad", "fentry")
ONCE: tuple[tuple[str, ...], ...] = ((),)
QUICK: dict[str, tuple[tuple[str, ...], ...]] = {
    "calls.c": ONCE,
    "jumps.c": ONCE,
    "contexts.c": ONCE,
    "nested.c": ONCE,
    "unwind.c": ONCE,
    "early.c": ((), ("exit",), ("quick",)),
    "ends.cpp": ((), ("uncaught",), ("noexcept",), ("terminate",)),
}
"""Program: arguments of its runs."""
SLOW: dict[str, tuple[tuple[str, ...], ...]] = {
    "threads.c": ONCE,
    "signals.c": ONCE,
    "processes.c": ONCE,
    "throws.cpp": ONCE,
    "forks.c": ONCE,
    "sandbox.c": ((), ("filtered",)),
    "exits.c": tuple(
        (mode,)
        for mode in ("", "exit", "_exit", "exit_group", "abort", "kill", "term", "trap", "thread")
    ),
    "limits.c": tuple(
        (mode,)
        for mode in (
            *("", "closed", "nowhere", "chroot", "files=4", "files=64", "size=4096", "size=65536"),
            *("size=20480000", "space=0x4000000", "space=0x10000000", "space=0x20000000"),
        )
    ),
}
SAMPLE = 5
"""Forms of each slow program."""


def _forms() -> list[Form]:
    links = ("static", "pie", "no-pie")
    product = itertools.product(ARCHES, links, LEVELS, SITES)
    return [Form(arch, link, level, site) for arch, link, level, site in product]


def _more() -> list[Form]:
    """What the product has not: clang, static PIE, no frame pointers and other ways to return."""
    found = []
    for arch in ARCHES:
        found += [Form(arch, link, "-O2", compiler="clang") for link in ("static", "pie")]
        found.append(Form(arch, "no-pie", "-O2", "fentry", "clang"))
        found.append(Form(arch, "static-pie", "-O2"))
        found.append(Form(arch, "pie", "-O1", more=("-fno-omit-frame-pointer",)))
        found.append(Form(arch, "pie", "-Os", more=("-fstack-protector-all",)))
        if arch == "x86_64":
            found.append(Form(arch, "pie", "-O2", more=("-fcf-protection=full",)))
            found.append(Form(arch, "pie", "-O2", more=("-mfunction-return=thunk",)))
    return found


def _cases() -> list[object]:
    rng = random.Random(SEED)
    cases = [(name, form) for name in QUICK for form in _forms()]
    for name in SLOW:
        cases += [(name, form) for form in rng.sample(_forms(), SAMPLE)]
    for form in _more():
        some = rng.sample(sorted({**QUICK, **SLOW}), 4)
        cases += [(name, form) for name in some]
    return [_marked(name, form) for name, form in cases]


def _marked(name: str, form: Form) -> object:
    return pytest.param(name, form, id=f"{name}-{form}")


@pytest.mark.parametrize(("name", "form"), _cases())
def test_it_does_what_it_did(name: str, form: Form, tmp_path: Path) -> None:
    program = build(form, name, tmp_path)
    assert not differences(program, {**QUICK, **SLOW}[name], arch=form.arch)


@pytest.mark.parametrize("options", [("--depth", "8"), ("--depth", "65536"), ("--size", "64K")])
def test_limits_of_the_tracer_are_not_the_programs(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("calls.c", "jumps.c", "contexts.c", "threads.c", "throws.cpp"):
        program = build(Form(), name, tmp_path)
        assert not differences(program, QUICK.get(name, ONCE), options=options), name
