# SPDX-License-Identifier: MIT
"""Any commands on any module: taken back they are the identity, repeated they change nothing."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.command import Result, ftpatch
from tests.support.loose_forms import CALLING, FORMS
from tests.support.loose_images import MARKER, Loose, module, section_of, signed
from tests.support.loose_reader import read_loose
from tests.support.loose_trees import PACK, UNPACK
from tests.support.sampling import scaled

SECTIONS = (".text", ".text", ".init.text", ".text.unlikely", ".ref.text")
NAMES = ["printk", "first", "new_one", "new_two", "ftrace_caller", "a.very$odd_name@v1"]
forms = pytest.mark.parametrize("name", FORMS)
randoms = st.randoms(use_true_random=False)


def _module(name: str, rng: random.Random) -> Loose:
    """Some functions in some sections, records in some order, named in some way."""
    names = ["first", *(f"f{i}" for i in range(rng.choice((1, 2, 7, 20))))]
    functions = [(function, rng.choice(SECTIONS)) for function in names]
    order = rng.sample(range(len(names)), len(names))
    by = rng.choice(("section", "function", "label"))
    return module(FORMS[name], functions, order=order, by=by)


@contextmanager
def _file(data: bytes, suffix: str = "") -> Iterator[Path]:
    """hypothesis runs many examples in one test, and each has a folder of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        path = Path(name, "demo.ko" + suffix)
        path.write_bytes(data)
        yield path
        left = {p.name for p in path.parent.iterdir()}
        assert left <= {path.name, path.name + ".ftpatch"}, left


def _command(path: Path, rng: random.Random) -> list[str]:
    rows = ftpatch("list", "--json", path).json
    chosen = rng.sample(rows, rng.choice((1, 1, len(rows) // 2 or 1, len(rows))))
    options = [w for row in chosen for w in ("-f", rng.choice((row["ip"], row["symbol"])))]
    options = rng.choice((options, options, ["-f", "f*"], ["-n", "first"], []))
    if rng.random() < 0.2:
        options.append("--keep-records")
    if rng.random() < 0.6:
        return ["enable", "--to", rng.choice((*NAMES, "__fentry__")), *options]
    nops = [[], [], ["--nop", rng.choice(("p6", "nop5", "jmp"))]]
    return ["disable", *rng.choice(nops), *options]


def _well_ended(result: Result) -> Result:
    assert result.code in (0, 1, 2) and "internal error" not in result.err, result
    assert result.code == 0 or result.err or '"failed": [{' in result.out, result
    return result


@settings(max_examples=scaled(6, 3))
@given(randoms)
@forms
def test_undo_all_is_the_identity(name: str, rng: random.Random) -> None:
    data = _module(name, rng).build()
    if rng.random() < 0.3:
        data = signed(data, rng.randrange(500))
    with _file(data) as path:
        states = [data]
        for _ in range(rng.randrange(1, 7)):
            command = [*_command(path, rng), "--strip-signature"]
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
            assert again.only["changed"] == again.only["dropped"] == again.only["restored"] == 0
            if rng.random() < 0.2 and not after.endswith(MARKER):
                states[-1] = signed(after, rng.randrange(90))
                path.write_bytes(states[-1])
        copy = path.with_name(path.name + ".ftpatch")
        if len(states) > 1:
            assert ftpatch("undo", "--all", path, "-o", copy).code == 0
            assert copy.read_bytes() == states[0]
        for before in reversed(states[:-1]):
            assert ftpatch("undo", path).code == 0
            assert path.read_bytes() == before, "one at a time, too"
        assert ftpatch("undo", path).code == 2, "then there is no journal"


def _sections(data: bytes) -> tuple[object, ...]:
    """All that a module is but where its sections lie: journals are of several lengths, as that of
    a packed one also keeps what is around it."""
    read = read_loose(data)
    return read.contents, read.relocations, read.symbols


@settings(max_examples=scaled(6, 3))
@given(randoms)
@forms
def test_packed_as_unpacked(name: str, rng: random.Random) -> None:
    """Whatever is done to a module, inside of a packed one the same is done."""
    data, suffix = _module(name, rng).build(), rng.choice((".gz", ".xz", ".zst"))
    with _file(data) as path, _file(PACK[suffix](data), suffix) as packed:
        for _ in range(rng.randrange(1, 6)):
            command = rng.choice((_command(path, rng), _command(path, rng), ["undo"]))
            way = [] if command == ["undo"] else ["--in-place"]
            codes = {_well_ended(ftpatch(*command, *way, p)).code for p in (path, packed)}
            assert len(codes) == 1, command
            inside = UNPACK[suffix](packed.read_bytes())
            assert _sections(inside) == _sections(path.read_bytes()), command
        for target in (path, packed):
            ftpatch("undo", "--all", target)
        assert UNPACK[suffix](packed.read_bytes()) == path.read_bytes() == data


@settings(max_examples=scaled(6, 3))
@given(randoms)
@forms
def test_one_bad_site_and_nothing_is_written(name: str, rng: random.Random) -> None:
    image = _module(name, rng)
    rows = _rows(image)
    bad = rng.choice(rows)
    data = bytearray(image.build())
    data[bad["offset"] : bad["offset"] + 4] = b"\x0b\x0b\x0b\x0b"
    few = {row["ip"] for row in rng.sample(rows, min(len(rows), 5))} | {bad["ip"]}
    with _file(bytes(data)) as path:
        options = [word for ip in sorted(few) for word in ("-f", ip)]
        to = rng.choice(["new_one", "printk"])
        result = _well_ended(ftpatch("enable", "--to", to, path, "--json", *options))
        assert result.code == 1, result
        assert [site["ip"] for site in result.only["failed"]] == [bad["ip"]]
        assert result.only["changed"] == 0 and result.only["output"] is None
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        assert path.read_bytes() == data


@pytest.mark.parametrize("name", CALLING)
@settings(max_examples=scaled(6, 3))
@given(randoms)
def test_one_bad_relocation_and_nothing_is_written(name: str, rng: random.Random) -> None:
    """Gone, of another type, of another symbol, at another place, there twice, or one more."""
    image, form = _module(name, rng), FORMS[name]
    rows = _rows(image)
    where = rng.choice([n for n, r in image.rows.items() if n != form.table])
    entries = image.rows[where]
    at = rng.choice([i for i, row in enumerate(entries) if row[2] == form.mcount])
    place, kind, symbol, addend = entries[at]
    bad = rng.choice(
        [
            [],
            [(place, 9, symbol, addend)],
            [(place, kind, "printk", addend)],
            [(place + 1, kind, symbol, addend)],
            [(place, kind, symbol, addend)] * 2,
            [(place, kind, symbol, addend), (place + 2, kind, "printk", addend)],
        ]
    )
    entries[at : at + 1] = bad
    text = section_of(image, where)
    site = next(r for r in rows if r["offset"] == _offset(image, text.name) + place - form.field)
    with _file(image.build()) as path:
        before = path.read_bytes()
        for command in (["disable"], ["enable", "--to", "new_one"]):
            result = _well_ended(ftpatch(*command, path, "--json"))
            assert result.code == 1, (bad, result)
            places = [failed["symbol"].split("+")[0] for failed in result.only["failed"]]
            assert set(places) == {site["symbol"]}
            assert [p.name for p in path.parent.iterdir()] == [path.name]
        assert path.read_bytes() == before


def _offset(image: Loose, section: str) -> int:
    return read_loose(image.build()).offsets[section]


def _rows(image: Loose) -> list[dict[str, Any]]:
    with _file(image.build()) as path:
        return ftpatch("list", "--json", path).json


@settings(max_examples=scaled(6, 3))
@given(randoms)
@forms
def test_what_a_command_says_is_what_is_there(name: str, rng: random.Random) -> None:
    """By status and list, and, of records and relocations, by another reader."""
    form = FORMS[name]
    with _file(_module(name, rng).build()) as path:
        functions = len(ftpatch("list", "--json", path).json)
        for verb, state in ((["enable", "--to", "new_one"], "call"), (["disable"], "nop")):
            before = {row["ip"]: row for row in ftpatch("list", "--json", path).json}
            chosen = set(rng.sample(sorted(before), rng.randrange(1, len(before) + 1)))
            options = [word for ip in sorted(chosen) for word in ("-f", ip)]
            result = ftpatch(*verb, "--in-place", "--json", path, *options)
            assert result.code == 0, result.err
            after = {row["ip"]: row for row in ftpatch("list", "--json", path).json}
            assert after.keys() == before.keys(), "no site is lost with its record"
            for ip, row in after.items():
                assert row["state"] == (state if ip in chosen else before[ip]["state"])
                assert ip in chosen or row == before[ip]
            dropped = [row for row in after.values() if row["dropped"]]
            read = read_loose(path)
            assert len(read.records(form.table)) == functions - len(dropped)
            assert len(set(read.records(form.table))) == len(read.relocations[form.table])
            assert ("new_one" in read.undefined()) == any(
                row["target"] == "new_one" for row in after.values()
            )
            assert result.only["changed"] + result.only["unchanged"] == len(chosen)
            assert ftpatch("check", path).code == 0
