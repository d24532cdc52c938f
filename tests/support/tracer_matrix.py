# SPDX-License-Identifier: MIT
"""Which programs of tests/programs are run in which forms.

On x86_64 the whole product of forms for the programs that take no time, and for the others a sample
of it, always the same one. On the other architectures each program in a few forms, so that every
pair of program, link, level and kind of site occurs. `make test-matrix` runs the whole product
everywhere.
"""

from __future__ import annotations

import itertools
import random

from tests.support.sampling import PRODUCT
from tests.support.tracer_programs import ARCHES, Form

__all__ = ["FOREIGN", "LEFT_OUT", "QUICK", "SLOW", "cases", "forms", "runs"]

NATIVE = "x86_64"
FOREIGN = tuple(arch for arch in ARCHES if arch != NATIVE)
SEED = 5
LINKS = ("static", "pie", "no-pie")
LEVELS = ("-O0", "-O2", "-O3")
SITES = ("pad", "fentry")
Runs = tuple[tuple[str, ...], ...]
"""Arguments of each run."""
ONCE: Runs = ((),)
QUICK: dict[str, Runs] = {
    "calls.c": ONCE,
    "jumps.c": ONCE,
    "contexts.c": ONCE,
    "nested.c": ONCE,
    "unwind.c": ONCE,
    "early.c": ((), ("exit",), ("quick",)),
    "ends.cpp": ((), ("uncaught",), ("noexcept",), ("terminate",)),
}
"""Of programs that take no time."""
SLOW: dict[str, Runs] = {
    "threads.c": ONCE,
    "signals.c": ONCE,
    "processes.c": ONCE,
    "throws.cpp": ONCE,
    "forks.c": ((), ("raw",)),
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
    "tree.c": ONCE,
    "many.c": ONCE,
    "registers.c": ONCE,
    "ports.c": ONCE,
    "ports.cpp": ONCE,
}
SHORTER: dict[str, Runs] = {"throws.cpp": (("9",),)}
"""On other architectures."""
EMULATED = "qemu-user"
LEFT_OUT: dict[tuple[str, str, str], str] = {
    # architecture, program, its argument: why it does not run there without a tracer either
    (arch, program, mode): f"{EMULATED} {reason}"
    for arch in ("arm64", "riscv64", "ppc64le", "s390x", "arm", "loongarch64")
    for program, mode, reason in (
        ("sandbox.c", "filtered", "has no seccomp()"),
        ("sandbox.c", "forking", "has no seccomp()"),
        ("limits.c", "files=4", "needs more descriptors for itself"),
        ("forks.c", "shared", "lets only threads share memory"),
    )
}
LEFT_OUT["loongarch64", "threads.c", ""] = f"{EMULATED} crashes where it unwinds from a signal"
SAMPLE = 5
"""Forms of each slow program, on x86_64."""


def runs(name: str, arch: str) -> Runs:
    """Those of a program that are possible on an architecture."""
    every = {**QUICK, **SLOW, **(SHORTER if arch in FOREIGN else {})}[name]
    return tuple(args for args in every if (arch, name, "".join(args)) not in LEFT_OUT)


def forms(arch: str) -> list[Form]:
    """The product, but for what compilers have not: i386 has no __fentry__ in code for PIE."""
    return [
        Form(arch, link, level, site)
        for link, level, site in itertools.product(LINKS, LEVELS, SITES)
        if site == "pad" or (ARCHES[arch].fentry and (arch, link) != ("i386", "pie"))
    ]


def _turn(arch: str, turn: int) -> list[Form]:
    """One form of each link, each of another level; six turns make all of them."""
    found = []
    for number, link in enumerate(LINKS):
        level = LEVELS[(number + turn) % 3]
        sites = [form.site for form in forms(arch) if (form.link, form.level) == (link, level)]
        found.append(Form(arch, link, level, sites[(number // 2 + turn // 3) % len(sites)]))
    return found


def _more(arch: str) -> list[Form]:
    """What the product has not: clang, static PIE, no frame pointers and other ways to return."""
    found = [
        Form(arch, "static-pie", "-O2"),
        Form(arch, "pie", "-O1", more=("-fno-omit-frame-pointer",)),
        Form(arch, "pie", "-Os", more=("-fstack-protector-all",)),
    ]
    if arch == "x86_64":
        found += [Form(arch, link, "-O2", compiler="clang") for link in ("static", "pie")]
        found.append(Form(arch, "no-pie", "-O2", "fentry", "clang"))
        found.append(Form(arch, "pie", "-O2", more=("-fcf-protection=full",)))
        found.append(Form(arch, "pie", "-O2", more=("-mfunction-return=thunk",)))
    elif arch == "i386":
        found.append(Form(arch, "no-pie", "-O2", more=("-maccumulate-outgoing-args",)))
        found.append(Form(arch, "pie", "-O2", more=("-mfunction-return=thunk",)))
    elif arch == "arm64":
        found.append(Form(arch, "pie", "-O2", more=("-mbranch-protection=standard",)))
        found.append(Form(arch, "static", "-O2", more=("-mno-outline-atomics",)))
    elif arch == "riscv64":
        found.append(Form(arch, "pie", "-O2", more=("-msave-restore",)))
        found.append(Form(arch, "static", "-O2", more=("-march=rv64g", "-mno-relax")))
    elif arch == "ppc64le":
        found.append(Form(arch, "pie", "-O2", more=("-mlongcall",)))
        found.append(Form(arch, "static", "-O2", more=("-mcmodel=large",)))
    elif arch == "arm":
        arm = ("-marm", "-fpatchable-function-entry=2")
        found += [Form(arch, link, "-O2", more=arm) for link in ("static", "pie", "no-pie")]
        found.append(Form(arch, "pie", "-O2", more=("-mlong-calls",)))
    elif arch == "loongarch64":
        found.append(Form(arch, "pie", "-O2", more=("-mcmodel=medium",)))
        found.append(Form(arch, "static", "-O2", more=("-mno-relax", "-mno-lsx")))
    elif arch == "s390x":
        found.append(Form(arch, "pie", "-O2", more=("-mbackchain",)))
        found.append(Form(arch, "static", "-O2", more=("-march=z13", "-mpacked-stack")))
    return found


def cases() -> list[tuple[str, Form]]:
    """(program, form)."""
    rng = random.Random(SEED)
    found = [(name, form) for name in QUICK for form in forms(NATIVE)]
    for name in SLOW:
        some = forms(NATIVE) if PRODUCT else rng.sample(forms(NATIVE), SAMPLE)
        found += [(name, form) for form in some]
    for arch in FOREIGN:
        for turn, name in enumerate((*QUICK, *SLOW)):
            some = forms(arch) if PRODUCT else _turn(arch, turn)
            found += [(name, form) for form in some]
    for arch in ARCHES:
        for form in _more(arch):
            names = rng.sample(sorted({**QUICK, **SLOW}), 4 if arch == NATIVE else 2)
            found += [(name, form) for name in names]
    return found
