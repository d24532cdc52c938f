# SPDX-License-Identifier: MIT
"""What `check` predicts of a broken module, and what becomes of it when it is loaded.

A module has no addresses before it is loaded: they, and what the loader fills in, are `??` in the
prediction. Where they came to lie is read afterwards, so that the place is compared as well.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .cases import SEED
from .cli import Foretold, ftpatch, read_check
from .guest import Step, run_steps
from .independent import PADS
from .mod_breakage import ALWAYS_REFUSED, FAR, INSIDE, KEPT, MODULE_BREAKAGES
from .modfile import ModuleFile, unsigned
from .oracle import DIFFERS, PROPERTY, Row, summary
from .qemu import FtraceBug, normal, read_console
from .trees import Tree
from .variants import CLOSED, OWN

STRAY = "if other memory is mapped there"
LOAD = """
load() {
    insmod /m/$1; echo "insmod $?"
    for s in /sys/module/dummy/sections/.[a-z]*; do echo "at ${s##*/} $(cat $s)"; done
    rmmod dummy; echo "rmmod $?"
}
"""


@dataclass(frozen=True)
class Broken:
    """One module, what was foretold of it, and its step."""

    name: str
    place: str
    foretold: Foretold
    step: Step


def _make(tree: Tree, scratch: Path) -> dict[str, tuple[str, bytes]]:
    """Each breakage's function, and the module."""
    made = {}
    for breakage in MODULE_BREAKAGES[tree.arch]:
        module = ModuleFile(unsigned(tree.module("dummy")))
        text = [r for r in module.records if module.sections[r.section].name == ".text"]
        record = random.Random(f"{SEED} {tree.name} {breakage.__name__}").choice(text)
        breakage(module, record)
        made[breakage.__name__] = record.function, bytes(module.data)
    path = scratch / f"{tree.name}-kept.ko"
    path.write_bytes(tree.module("dummy"))
    words = ["--in-place", "--strip-signature", "--keep-records", "-f", "dummy_xmit"]
    callee = ["--to", OWN if tree.arch in CLOSED else "ether_setup"]
    pads = tree.arch in PADS
    done = ftpatch("enable" if pads else "disable", path, *words, *(callee if pads else [])).one
    assert (done["changed"], done["dropped"]) == (1, 0)
    return made | {KEPT: ("dummy_xmit", path.read_bytes())}


@pytest.fixture(scope="session")
def broken_modules(tree: Tree, scratch: Path) -> dict[str, Broken]:
    """All of them, loaded: those of which no bug is foretold in one boot, the others in one each,
    since ftrace is dead behind a bug."""
    alone: list[dict[str, bytes]] = []
    together: dict[str, bytes] = {}
    foretold, places = {}, {}
    for name, (place, data) in _make(tree, scratch).items():
        path = scratch / f"{tree.name}-{name}.ko"
        path.write_bytes(data)
        foretold[name], places[name] = read_check(path), place
        if read_console(foretold[name].text).ftrace_bug or foretold[name].dies:
            alone.append({name: data})
        else:
            together[name] = data
    steps: dict[str, Step] = {}
    for batch in [together, *alone]:
        while left := {name: data for name, data in batch.items() if name not in steps}:
            files = {f"m/{name}": data for name, data in left.items()}
            commands = {name: f"load {name}" for name in left}
            steps |= run_steps(tree, scratch, files, commands, LOAD, may_die=True)
    return {name: Broken(name, places[name], foretold[name], steps[name]) for name in steps}


def agree(told: FtraceBug | None, seen: FtraceBug | None, step: Step) -> bool:
    """Word for word, with ``??`` for any byte; and the place, by where its section came to lie."""
    if told is None or seen is None:
        return told is seen
    for one, other in ((told.actual, seen.actual), (told.expected, seen.expected)):
        if re.fullmatch(one.replace("??", "[0-9a-f]{2}"), other) is None:
            return False
    return (told.kind, told.type) == (seen.kind, seen.type)


def strays(case: Broken, told: FtraceBug | None, seen: FtraceBug | None) -> bool:
    """Whether the kernel found bytes of somebody else's where nothing was foretold to be."""
    if told is None or seen is None or STRAY not in case.foretold.text:
        return False
    assert (told.kind, told.actual) == ("ftrace faulted on modifying", "")
    bases = dict(line.split() for line in case.step.values("at"))
    behind = seen.address - int(bases[".text"], 16) - FAR
    return 0 <= behind <= INSIDE and seen.kind == "ftrace failed to modify"


def where(foretold: Foretold, seen: FtraceBug, step: Step) -> bool:
    """Whether ``[<.text+0xa0>]`` is where the kernel met the bug."""
    place = re.search(r"\[<(\.\S+)\+(0x[0-9a-f]+)>\]", foretold.text)
    assert place is not None, foretold.text
    bases = dict(line.split() for line in step.values("at"))
    return int(bases[place[1]], 16) + int(place[2], 16) == seen.address


def test_broken_modules(
    tree: Tree,
    broken_modules: dict[str, Broken],
    module_breakage: str,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    case = broken_modules[module_breakage]
    told, seen = read_console(case.foretold.text).ftrace_bug, case.step.ftrace_bug
    loads = case.step.values("insmod") == ["0"]
    log = normal((case.step.log or ["?"])[-1]).removeprefix("module: ")
    trouble = "" if loads else f"not loaded: {log.partition(',')[0]}"
    if case.step.died:
        trouble = "the kernel dies"
    elif loads and not seen:
        trouble = "; ".join(sorted(case.step.warnings))
    agreed = agree(told, seen, case.step) or strays(case, told, seen)
    agreed = agreed and (not trouble or bool(case.foretold.findings))
    agreed = agreed and case.foretold.dies <= case.step.died
    if case.name == "record_far":
        agreed = agreed and case.foretold.dies == case.step.died
    if agreed and told and seen and loads and "[<." in case.foretold.text:
        agreed = where(case.foretold, seen, case.step)
    others = ", ".join(name for name in case.foretold.findings if name != "ftrace_init")
    row = Row(
        tree.name, "dummy.ko", case.name, case.place,
        summary(told, more="the kernel dies" * case.foretold.dies),
        summary(seen, more=trouble), others, agreed,
    )  # fmt: skip
    record_property(PROPERTY, row.properties())
    if reason := DIFFERS.get((tree.name, f"dummy.ko {case.name}")):
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    if case.name in ALWAYS_REFUSED:
        assert seen is not None, "the kernel does not mind: the test breaks nothing"
    assert agreed, (row, case.foretold.text, case.step.log)
