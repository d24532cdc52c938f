# SPDX-License-Identifier: MIT
"""What a boot tracer tells of a boot is what QEMU's own log tells of the untouched kernel's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from .boot_oracle import entered, stepped
from .booted import Booted, boot_traced, hang, planted, triple_fault
from .independent import Vmlinux

CUT = "ftrace_init"  # up to it, the kernel's own sites are calls, or NOPs that no one changes
UNTIL = "sched_init"  # the first function behind it that surely has a site
STEPS = 100
LAST = 10  # functions that are told of a boot that ended
PLANTED = "setup_arch"
LIMITS = ("8", "90")  # seconds that a boot may take up to PLANTED; the second on a slow machine
# SLUB looks at other nodes' slabs unless a clock's low bits say no (get_any_partial: get_cycles() %
# 1024). The tracer's own instructions move that clock.
CLOCKED = "mempolicy_slab_node"
MOST_CLOCKED = 3


@pytest.fixture(scope="module")
def expected(scratch: Path) -> Callable[[Vmlinux], list[int]]:
    """The sites of an untouched kernel's boot, by QEMU's log."""

    @cache
    def look(image: Vmlinux) -> list[int]:
        return entered(image, scratch, image.address(CUT))

    return look


@pytest.fixture(scope="module")
def told(scratch: Path) -> Callable[[Vmlinux], list[int]]:
    """The same as ftpatch tells it."""

    @cache
    def look(image: Vmlinux) -> list[int]:
        return _sites(image, boot_traced(image.path, "--until", UNTIL))

    return look


def _sites(image: Vmlinux, booted: Booted) -> list[int]:
    """ftpatch names functions by where they begin; a site may stand behind an endbr64 or a NOP."""
    places = zip(image.sites.tolist(), image.kallsyms.lookup(image.sites), strict=True)
    starts: dict[int, int] = {}
    for ip, (_, offset, _) in places:
        start = ip - offset
        starts[start] = min(ip, starts.get(start, ip))
    return [starts[at] for at in booted.functions]


def _name(image: Vmlinux, ip: int) -> str:
    return str(image.names[image.sites.tolist().index(ip)])


def test_first_event_is_the_first_site_of_a_stepped_boot(
    traceable: Vmlinux,
    told: Callable[[Vmlinux], list[int]],
    expected: Callable[[Vmlinux], list[int]],
    scratch: Path,
) -> None:
    """One instruction at a time; whole blocks show the same sites."""
    seen = stepped(traceable, scratch, STEPS)
    assert told(traceable)[0] == seen[0]
    assert told(traceable)[:STEPS] == seen
    assert expected(traceable)[:STEPS] == seen


def test_functions_up_to_ftrace_init(
    traceable: Vmlinux,
    told: Callable[[Vmlinux], list[int]],
    expected: Callable[[Vmlinux], list[int]],
    scratch: Path,
) -> None:
    """Each of some hundred thousand events, in the same order. QEMU may log a block twice that the
    host's time kept from being run: what one log has and another has not is the log's own. An event
    that the tracer lost is in both."""
    seen, wanted = told(traceable), expected(traceable)
    assert len(wanted) > 100_000
    assert _name(traceable, seen[-1]) == UNTIL
    found = _compared(traceable, seen, wanted)
    if isinstance(found, str):
        again = entered(traceable, scratch, traceable.address(CUT))
        second = _compared(traceable, seen, again)
        assert not isinstance(second, str), f"two logs: {found}; {second}"
        warnings.warn(f"QEMU's first log: {found}", stacklevel=1)
        found = second
    behind = {_name(traceable, ip) for ip in seen[found:]}
    assert UNTIL in behind, "what follows ftrace_init is told as well"


def _compared(image: Vmlinux, seen: list[int], wanted: list[int]) -> int | str:
    """How many events of a log are told, all in its order; or the first difference."""
    clocked = {
        ip for ip, name in zip(image.sites.tolist(), image.names, strict=True) if name == CLOCKED
    }
    skipped = at = 0
    for number, ip in enumerate(wanted):
        if seen[at] == ip:
            at += 1
        elif ip in clocked:
            skipped += 1
        elif seen[at] in clocked and seen[at + 1] == ip:
            skipped += 1
            at += 2
        else:
            names = [_name(image, one) for one in (ip, seen[at])]
            rest = wanted[number + 1 :][:STEPS] == seen[at:][:STEPS]
            return (
                f"event {number}: {names[0]} was run, {names[1]} is told; in all "
                f"{wanted.count(ip)} and {seen.count(ip)} times; the rest "
                f"{'is the same' if rest else 'differs, too'}"
            )
    return at if skipped <= MOST_CLOCKED else f"{CLOCKED}: {skipped} events differ"


def _before(image: Vmlinux, wanted: list[int]) -> list[str]:
    """The last functions of a boot that ends in PLANTED."""
    names = dict(zip(image.sites.tolist(), image.names, strict=True))
    end = next(at for at, ip in enumerate(wanted) if names[ip] == PLANTED) + 1
    return [names[ip] for ip in wanted[end - LAST : end]]


def _planted_site(image: Vmlinux) -> int:
    return int(image.sites[image.names.index(PLANTED)])


def test_hang_is_told(
    traceable: Vmlinux, expected: Callable[[Vmlinux], list[int]], scratch: Path
) -> None:
    """The last functions are those that were run before a branch to itself, and the one with it."""
    booted = None
    with planted(traceable, _planted_site(traceable), hang(traceable), scratch) as path:
        for limit in LIMITS:
            booted = boot_traced(path, "--limit", limit)
            if booted.rows and booted.last[-1] == PLANTED:
                break
    assert booted is not None
    assert booted.last == _before(traceable, expected(traceable))
    assert [row["function"] for row in booted.rows if row["event"] == "entry"][-1] == PLANTED
    assert "ended after" in booted.said


def test_reset_is_told(
    traceable: Vmlinux, expected: Callable[[Vmlinux], list[int]], scratch: Path
) -> None:
    """A triple fault ends QEMU; the last functions are those that were run before it."""
    site = _planted_site(traceable)
    with planted(traceable, site, triple_fault(traceable, site), scratch) as path:
        booted = boot_traced(path)
    assert booted.last == _before(traceable, expected(traceable))
    assert "QEMU ended with 0" in booted.said
