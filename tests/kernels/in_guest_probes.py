# SPDX-License-Identifier: MIT
"""Run in a guest: probes laid into processes. What is asked is in tests/support/probed_process.py;
test_process_probes.py says what is right."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.kernels.in_guest import TRACE, Running, done, forked, ftpatch, running, tried

__all__ = ["CASES"]

LIBC = "libc.so.6"
ROUNDS = 20
MIDST = "p:midst six+8"
LAPS = 3
"""Probes are laid in and taken out as often while threads call what they are in."""


def laid_in(one: Running, *probes: str) -> None:
    done("probe", "--pid", one.pid, *probes, "--keep", "-o", TRACE)


def hits() -> dict[str, Any]:
    """How often each probe was hit and by which ways, and the values of each hit."""
    rows = [json.loads(line) for line in done("report", TRACE, "--format", "json").splitlines()]
    values: dict[str, list[Any]] = {}
    for row in rows:
        if "values" in row:
            values.setdefault(row["probe"], []).append(row["values"])
    ways = sorted({row["way"] for row in rows if "way" in row})
    return {"hits": {name: len(those) for name, those in values.items()}, "ways": ways} | {
        "values": values
    }


def _values(program: str, *more: str) -> dict[str, Any]:
    """Arguments, memory, returns, and an instruction in the midst of a function."""
    arguments = " ".join(f"{name}=$arg{n}:s64" for n, name in enumerate("abcdef", 1))
    with running(program) as one:
        before = one.maps()
        laid_in(
            one,
            f"p:six six {arguments}",
            "r:rsix six value=$retval:s64",
            "p:named named name=+0($arg1):string second=+4($arg2):s32",
            "r:rthree three $retval:s64",
            *more,
        )
        during = one.ask(f"c{ROUNDS}")
        told = {
            "checked": ftpatch("check", "--pid", one.pid)[:2],
            "probes": done("probe", "--pid", one.pid).splitlines(),
            "sites": [*ftpatch("list", "--pid", one.pid), *ftpatch("status", "--pid", one.pid)],
            "again": ftpatch("probe", "--pid", one.pid, "p three")[::2],
        }
        done("undo", "--pid", one.pid)
        after = one.ask(f"c{ROUNDS}")
        clean = one.clean(before)
    return {"during": during, "after": after, **told, **hits(), **clean}


def probes_jump() -> dict[str, Any]:
    return _values("/asked", MIDST)


def probes_pad() -> dict[str, Any]:
    return _values("/asked-pads")


def probes_bti() -> dict[str, Any]:
    return _values("/asked-bti", MIDST)


def probes_static() -> dict[str, Any]:
    """Two programs, whose code ends half a page apart: the last page of one has room for a call."""
    found = {}
    for name in ("/asked-static", "/asked-static-longer"):
        with running(name) as one:
            before = one.maps()
            words = ("probe", "--pid", one.pid, "p:six six a=$arg1:s64", "r:deep deep", "--keep")
            code, _, err = tried(*words, "-o", TRACE)
            during = one.ask(f"c{ROUNDS}")
            if not code:
                done("undo", "--pid", one.pid)
            found[name] = {"code": code, "err": err, "during": during, **one.clean(before)}
            found[name] |= {} if code else hits()
    return {"programs": found}


def probes_library() -> dict[str, Any]:
    """A library's function by its name and its path, beside one of the program's, and libc's own
    calls of malloc."""
    with running("/asked-library") as one:
        before = one.maps()
        laid_in(
            one,
            "p:in libthree.so:three n=$arg1:s64",
            "r:out /libthree.so:three $retval:s64",
            "p:own six",
        )
        during = one.ask(f"c{ROUNDS}")
        done("undo", "--pid", one.pid)
        after = one.ask(f"c{ROUNDS}")
        clean = one.clean(before)
    return {"during": during, "after": after, **hits(), **clean}


def probes_libc() -> dict[str, Any]:
    """Called by all threads at once, by libc itself too; then laid in and taken out while they
    call."""
    with running("/asked") as one:
        one.ask("t4")
        probes = (
            f"p:m {LIBC}:malloc size=$arg1:u64",
            f"r:mr {LIBC}:malloc",
            f"p:s {LIBC}:strlen text=+0($arg1):string",
            f"p:f {LIBC}:free",
        )
        laid_in(one, *probes)
        rounds = one.ask("t4")
        done("undo", "--pid", one.pid)
        found = hits()
        texts = Counter(each["text"] for each in found["values"].pop("s"))
        sizes = Counter(str(each["size"]) for each in found["values"].pop("m"))
        answers = []
        for _ in range(LAPS):
            one.tell("t4")
            laid_in(one, *probes)
            done("undo", "--pid", one.pid)
            answers.append(one.answer())
        checked = ftpatch("check", "--pid", one.pid)
    return {
        "rounds": rounds,
        "answers": answers,
        "hits": found["hits"],
        "texts": texts["x" * 16],
        "sizes": [sizes[str(1000003 + own)] for own in range(4)] + [sizes["17"]],
        "check": checked,
    }


def probes_pending() -> dict[str, Any]:
    """Taken out while calls wait whose returns are probed; and laid in while they do."""
    with running("/asked") as one:
        before = one.maps()
        laid_in(one, "r:deep deep $retval", f"r:gets {LIBC}:fgets")
        waits = one.ask("d20")
        out = json.loads(done("undo", "--pid", one.pid, "--json"))
        clean = one.clean(before)
        answers = [one.ask("")]
        one.ask("d5")
        laid_in(one, "r:deep deep $retval:s64")
        answers += [one.ask(""), one.ask("d2"), one.ask("")]
        done("undo", "--pid", one.pid)
    return {"waits": waits, "returns": out["returns"], "answers": answers, **hits(), **clean}


def probes_refused() -> dict[str, Any]:
    """Nothing is changed then."""
    said = {}
    with running("/asked-signed") as one:
        before = one.maps()
        for probe in ("p deep", f"r {LIBC}:_setjmp", f"r {LIBC}:swapcontext", "p libc.so:malloc"):
            said[probe] = tried("probe", "--pid", one.pid, probe, "--seconds", 1)[::2]
        clean = one.clean(before)
    return {"refused": said, **clean}


def probes_for_a_while() -> dict[str, Any]:
    """One command that lays probes in, waits, takes them out and reports."""
    with running("/asked") as one:
        before, answers = one.maps(), set[str]()
        words = ("--pid", one.pid, "p:six six a=$arg1:s64", f"p:m {LIBC}:malloc", "--seconds", 2)
        meanwhile = lambda: answers.add(one.ask(f"c{ROUNDS}"))  # noqa: E731
        code, out, err = forked(meanwhile, "probe", *words)
        clean = one.clean(before)
    return {"during": sorted(answers), "code": code, "out": out[:2000], "err": err, **clean}


CASES = (
    *(probes_jump, probes_pad, probes_bti, probes_static, probes_library, probes_libc),
    *(probes_pending, probes_refused, probes_for_a_while),
)
