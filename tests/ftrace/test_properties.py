# SPDX-License-Identifier: MIT
"""Any sequence of commands: undone it is the identity, repeated it changes nothing."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.command import Result, ftpatch
from tests.support.images import (
    arm64_callops_kernel,
    arm64_rela_kernel,
    arm64_relr_kernel,
    fentry_kernel,
    pad_program,
)
from tests.support.samples import SAMPLES, sample
from tests.support.sampling import scaled

MADE = {
    make.__name__: make
    for make in (
        fentry_kernel,
        pad_program,
        arm64_rela_kernel,
        arm64_relr_kernel,
        arm64_callops_kernel,
    )
}
IMAGES = [s.name for s in SAMPLES if s.expected["sites"] and s.name != "pad-glibc-static"]
IMAGES += ["pad-noheaders", *MADE]

NAMELESS = "pad-stripped"
"""Without a symbol for ftrace_caller."""


def data_of(name: str) -> bytes:
    """A sample or a made image."""
    return MADE[name]().build() if name in MADE else sample(name).data


@contextmanager
def _file(data: bytes | bytearray) -> Iterator[Path]:
    """hypothesis runs many examples in one test, and each has a folder of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        path = Path(name, "image")
        path.write_bytes(data)
        yield path
        left = {p.name for p in path.parent.iterdir()}
        assert left <= {"image", "image.ftpatch"}, left


def _commands(path: Path, rng: random.Random) -> list[list[str]]:
    """Commands that may or may not succeed, over random sites."""
    rows = ftpatch("list", "--json", path).json
    out = []
    for _ in range(rng.randrange(1, 6)):
        chosen = rng.sample(rows, rng.choice((1, 2, len(rows) // 2, len(rows))))
        options = [word for row in chosen for word in ("-f", row["ip"])]
        if rng.random() < 0.2:
            options = []
        if rng.random() < 0.3:
            options.append("--keep-records")
        if rng.random() < 0.5:
            # Any code will do as a callee, at an address that branches can name.
            row = rng.choice(rows)
            target = hex(int(row["ip"], 16) - row["symbol_offset"])
            options += ["--to", target] if rng.random() < 0.5 else []
            out.append(["enable", *options])
        else:
            options += rng.choice(([], ["--nop", rng.choice(("p6", "nop5", "jmp"))]))
            out.append(["disable", *options])
    return out


def _well_ended(result: Result) -> Result:
    assert result.code in (0, 1, 2) and "internal error" not in result.err, result
    return result


@settings(max_examples=2)
@given(st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", IMAGES)
def test_undo_all_is_the_identity(name: str, rng: random.Random) -> None:
    data = data_of(name)
    with _file(data) as path:
        states = [data]
        for command in _commands(path, rng):
            result = _well_ended(ftpatch(*command, "--in-place", path))
            after = path.read_bytes()
            if result.code:
                assert after == states[-1], "a command that fails changes nothing"
                continue
            if after != states[-1]:
                states.append(after)
            again = _well_ended(ftpatch(*command, "--in-place", path, "--json"))
            assert again.code == 0, (command, again.err)
            assert path.read_bytes() == after, (command, "the same command changes nothing")
            assert again.only["changed"] == again.only["dropped"] == 0
        copy = path.with_name("image.ftpatch")
        if len(states) > 1:
            assert ftpatch("undo", "--all", path, "-o", copy).code == 0
            assert copy.read_bytes() == data
        for before in reversed(states[:-1]):
            assert ftpatch("undo", path).code == 0
            assert path.read_bytes() == before, "one at a time, too"
        assert ftpatch("undo", path).code == 2, "then there is no journal"


@settings(max_examples=2)
@given(st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", [name for name in IMAGES if name != "pad-noheaders"])
def test_one_bad_site_and_nothing_is_written(name: str, rng: random.Random) -> None:
    data = bytearray(data_of(name))  # not where the sites themselves tell where the table is
    with _file(data) as path:
        rows = [row for row in ftpatch("list", "--json", path).json if row["offset"] >= 0]
        bad = rng.choice(rows)
        at = bad["offset"]
        data[at : at + 4] = b"\x0b\x0b\x0b\x0b"  # neither NOP nor call of any architecture
        path.write_bytes(data)
        few = [row["ip"] for row in rng.sample(rows, min(len(rows), 5))] + [bad["ip"]]
        options = [word for ip in few for word in ("-f", ip)]
        if name == NAMELESS:
            options += ["--to", rows[0]["ip"]]
        result = _well_ended(ftpatch("enable", path, "--json", "--keep-records", *options))
        if result.code == 1 and not result.out:  # the sample whose sites reach no callee
            assert "cannot reach" in result.err
        else:
            assert result.code == 1, result
            assert [site["ip"] for site in result.only["failed"]] == [bad["ip"]]
            assert result.only["changed"] == 0 and result.only["output"] is None
        assert [p.name for p in path.parent.iterdir()] == ["image"]
        assert path.read_bytes() == data


@settings(max_examples=1)
@given(st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", IMAGES)
def test_enable_and_disable_are_seen_by_status(name: str, rng: random.Random) -> None:
    """What a command says that it did is what status, list and diff say afterwards."""
    with _file(data_of(name)) as path:
        rows = ftpatch("list", "--json", path).json
        chosen = {row["ip"] for row in rng.sample(rows, rng.randrange(1, min(len(rows), 20) + 1))}
        options = [word for ip in sorted(chosen) for word in ("-f", ip)]
        for verb, state in (("enable", "call"), ("disable", "nop")):
            before = {row["ip"]: row for row in ftpatch("list", "--json", path).json}
            result = ftpatch(verb, "--in-place", "--json", path, *options)
            if result.code and verb == "enable":
                assert "cannot reach" in result.err or "no ftrace_caller" in result.err
                return
            assert result.code == 0, result.err
            after = {row["ip"]: row for row in ftpatch("list", "--json", path).json}
            assert after.keys() == before.keys(), "no site is lost with its record"
            for ip, row in after.items():
                wanted = state if ip in chosen else before[ip]["state"]
                assert row["state"] == wanted
                assert ip in chosen or row == before[ip]
            differing = [ip for ip in after if after[ip]["state"] != before[ip]["state"]]
            assert result.only["changed"] >= len(differing)
            assert result.only["changed"] + result.only["unchanged"] == len(chosen)


@example(cut=0)
@given(cut=st.integers(1, 400))
@settings(max_examples=scaled(15, 5))
def test_a_torn_journal_is_never_half_undone(cut: int) -> None:
    with _file(sample("pad").data) as path:
        assert ftpatch("enable", "--in-place", path).code == 0
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) - cut])
        result = ftpatch("undo", path)
        if cut == 0:
            assert result.code == 0 and path.read_bytes() == sample("pad").data
        else:
            assert result.code == 2 and path.read_bytes() == whole[: len(whole) - cut]


@pytest.mark.parametrize("name", ["pad", "vmlinux-arm64", "vmlinux-arm64-callops", "i386-fentry"])
def test_undo_of_a_changed_file_is_refused(name: str) -> None:
    """Each byte that the journal speaks of must be what ftpatch wrote."""
    with _file(sample(name).data) as path:
        row = ftpatch("list", "--json", path).json[1]
        verb = ["enable", "-f", row["ip"]]
        assert ftpatch(*verb, "--in-place", path).code == 0
        data = bytearray(path.read_bytes())
        data[row["offset"] + 1] ^= 0x40
        path.write_bytes(data)
        result = ftpatch("undo", path)
        assert result.code == 1 and "something else" in result.err
        assert path.read_bytes() == data
