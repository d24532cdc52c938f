# SPDX-License-Identifier: MIT
"""Filters of watches: the compiler's idea of the same comparison counts the accesses, in programs
and beside processes; gdb counts those of its own condition."""

from __future__ import annotations

import itertools
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.core.token import Token
from ftpatch.errors import UsageError
from ftpatch.watch import Watch, parse_watch, watch_line
from ftpatch.watch.access_filter import MAX_STEPS, Values, filter_rows
from ftpatch.watch.filtered_rows import FilteredRows
from tests.support.command import PATIENCE, ftpatch
from tests.support.running import needs_gdb
from tests.support.sampling import scaled
from tests.support.watch_gdb import accesses_by_gdb
from tests.support.watch_live import accesses, built_shared, shared, watching
from tests.support.watch_programs import name_of, refusal, rows_of, run_watched, watched

SOURCE = Path(__file__).parent / "filtered.c"
ROUNDS = 12
"""Of tests/programs/watched.c."""
CASES: tuple[tuple[str, str, str], ...] = (
    ("number", "new < 10", "new < 10"),
    ("number", "new >= -1", "new >= -1"),
    ("number", "old != new", "old != new"),
    ("number", "old < new", "old < new"),
    ("number", "new == -10", "new == -10"),
    ("number", "new & 0x8000", "(new & 0x8000) != 0"),
    ("number", "new", "new != 0"),
    ("number", "!(old > new) || new == 9", "!(old > new) || new == 9"),
    ("number", "new:u32 > 0x7fffffff", "(unsigned)new > 0x7fffffffu"),
    ("number", "new:s16 < 0", "(short)new < 0"),
    ("number", "new:u8 == old:u8", "(unsigned char)new == (unsigned char)old"),
    ("number", "func == put_again", "in_again"),
    ("number", "func != put_again && new > 0", "!in_again && new > 0"),
    ("number", "(func == put_again || func == put_number) && new == 11", "new == 11"),
    ("number", "func == main", "0"),
    ("number", "tid > 1 && new == 9", "new == 9"),
    ("number", "tid < 0", "0"),
    ("small", "new > 32767", "new > 32767"),
    ("small", "new:s16 < 0 && old != new", "(short)new < 0 && old != new"),
    ("small", "new == -1", "new == 0xffff"),
    ("real", "new > 1.4", "new > 1.4"),
    ("real", "new != old", "new != old"),
    ("real", "new == 0", "new == 0"),
    ("real", "!(new <= 1e22)", "!(new <= 1e22)"),
    ("real", "new:x64 == 0", "new == 0 && !signbit(new)"),
    ("level", "new < 0", "(int)new < 0"),
    ("level", "new == 70000 && old < 0", "new == HIGH && (int)old < 0"),
)


def _built(folder: Path) -> tuple[Path, list[int]]:
    """filtered.c with debug information, and what it has counted."""
    if refusal():
        pytest.skip(refusal())
    tests = {
        name: " ".join(
            f"wanted[{row}] += {theirs};" for row, (of, _, theirs) in enumerate(CASES) if of == name
        )
        for name in ("number", "small", "real", "level")
    }
    (folder / "filtered.c").write_text(SOURCE.read_text() % (tests | {"many": len(CASES)}))
    path = folder / "filtered"
    words = ["gcc", "-O1", "-g", "-w", str(folder / "filtered.c"), "-o", str(path), "-lm"]
    subprocess.run(words, check=True)
    done = subprocess.run([str(path)], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return path, [int(word) for word in done.stdout.split()]


@pytest.mark.scaled
def test_accesses_are_those_that_the_program_counts(tmp_path: Path) -> None:
    program, wanted = _built(tmp_path)
    assert len(wanted) == len(CASES) and sum(map(bool, wanted)) > len(CASES) - 4
    rows = range(0, len(CASES), scaled(1, 3))
    found = []
    for row in rows:
        variable, ours, _ = CASES[row]
        target = program.with_name("patched")
        result = ftpatch("watch", program, f"{variable}:-w- if {ours}", "-o", target, "--force")
        assert result.code == 0, result.err
        done, trace = run_watched(target, trace=f"t{row}")
        assert [int(word) for word in done.stdout.split()] == wanted
        told = rows_of(trace)
        assert told[-1]["missed"] == 0 and told[-1]["hits"] == len(told) - 1
        assert told[-1]["watch"] == f"{variable}:-w- if {ours}"
        found.append(told[-1]["hits"])
    assert found == [wanted[row] for row in rows]


def test_counting_tests(tmp_path: Path) -> None:
    texts = "total:-w- if every(3)", "port:-w- if first(4)", "flag:-w-"
    rows = rows_of(run_watched(watched(tmp_path, *texts), "sizes")[1])
    third, first, whole = [row["hits"] for row in rows if "hits" in row]
    assert (first, third, whole) == (4, ROUNDS // 3, ROUNDS)


@needs_gdb
@pytest.mark.parametrize("condition", ["> 82", "& 1", "== 80"])
def test_counts_are_those_of_gdb(tmp_path: Path, condition: str) -> None:
    text = f"port:rw- if new {condition}"
    patched = watched(tmp_path, text)
    rows = [row for row in rows_of(run_watched(patched, "sizes")[1]) if "access" in row]
    found = Counter((0, name_of(row)) for row in rows)
    place = ("port", 0, 2, True)
    by_gdb = accesses_by_gdb(
        tmp_path / "watched", ["sizes"], [place], f"(unsigned short)port {condition}"
    )
    assert found == by_gdb and found


def test_beside_a_process(tmp_path: Path) -> None:
    """What is left out is neither an access nor missed, and has changed the value."""
    with shared(built_shared(tmp_path), "1") as program:
        with watching(program.pid, "cell:rw- if new == 7 && func == put", "--json") as watcher:
            program.do("own", "all", "fork")
            result = watcher.end()
        assert program.end() == 0
    rows = accesses(result)
    assert [(row["old"], row["new"], name_of(row)) for row in rows] == [("0x6", "0x7", "put")] * 3
    assert len({row["pid"] for row in rows}) == 2
    assert "3 accesses recorded" in result.err


def test_a_thread_of_a_process(tmp_path: Path) -> None:
    with shared(built_shared(tmp_path), "2") as program:
        text = f"cell:-w- if tid == {program.pid} && every(5)"
        with watching(program.pid, text, "--json") as watcher:
            _, before = program.do("all")
            _, after = program.do("own")
            rows = accesses(watcher.end())
    assert len(rows) == (after - before) // 5
    assert {row["tid"] for row in rows} == {program.pid}
    assert [int(row["new"], 16) for row in rows] == list(range(4, after - before, 5))


OLD_NEW = st.tuples(*[st.integers(0, (1 << 32) - 1) | st.sampled_from([0, 1, 1 << 31])] * 2)


def _signed(value: int) -> int:
    return value - (1 << 32) * (value >> 31)


ATOMS = st.sampled_from(
    ["new < 10", "old == new", "new:u32 > old:u32", "new > old", "tid == 7", "new:s8 < 0",
     "old >= -5", "new != 0", "new & 3"],
)  # fmt: skip
TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map("!({})".format),
        st.lists(inner, min_size=2, max_size=3).map(lambda of: f"({' && '.join(of)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda of: f"({' || '.join(of)})"),
    ),
    max_leaves=8,
)
PYTHON = {
    "new:u32 > old:u32": "n > o", "new:s8 < 0": "n & 0x80 != 0", "new & 3": "n & 3 != 0",
    "old == new": "n == o", "new > old": "s(n) > s(o)", "new < 10": "s(n) < 10",
    "tid == 7": "t == 7", "old >= -5": "s(o) >= -5", "new != 0": "n != 0",
}  # fmt: skip


@given(TREES, st.lists(st.tuples(OLD_NEW, st.sampled_from([7, 8])), max_size=20))
def test_many_at_once_are_as_python_has_them(
    tree: str, given_: list[tuple[tuple[int, int], int]]
) -> None:
    rows = filter_rows(Token.of(tree), Values(type="s32", length=4), lambda _: (0, 0))
    words = np.array([[old, new, 0, tid] for (old, new), tid in given_], np.uint64)
    passing = FilteredRows(rows).passing(words.reshape(-1, 4)).tolist()
    text = tree
    for ours, theirs in PYTHON.items():
        text = text.replace(ours, f"({theirs})")
    text = text.replace("!(", "not (").replace("&&", "and").replace("||", "or")
    wanted = [
        bool(eval(text, {"s": _signed, "o": old, "n": new, "t": tid})) for (old, new), tid in given_
    ]
    assert passing == wanted


def test_counters_go_on() -> None:
    rows = filter_rows(
        Token.of("every(3) || first(2)"), Values(type="u8", length=1), lambda _: (0, 0)
    )
    whole = FilteredRows(rows).passing(np.zeros((10, 4), np.uint64)).tolist()
    one = FilteredRows(rows)
    parts = [one.passing(np.zeros((n, 4), np.uint64)).tolist() for n in (1, 4, 0, 5)]
    assert [*itertools.chain(*parts)] == whole
    assert whole == [True, True, True, False, False, True, False, False, True, False]


NAMES = "known are old, new, tid, func"
FORM = "compare values, as in new < 10, joined by && and ||"
FUNC = "as in func == sell or func != sell"
ACCESS = "the processor does not say whether it reads or writes"


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ("x", f"a watch has no such value: 'x' at column 10; {NAMES}"),
        ("oldd == 1", "a watch has no such value: 'oldd' at column 10; did you mean old?"),
        ("comm == 'a'", "the thread's name is not known at an access: 'comm' at column 10; "
         "compare tid"),
        ("access == w", f"{ACCESS}: 'access' at column 10; write old != new"),
        ("type == w", f"{ACCESS}: 'type' at column 10; write old != new"),
        ("ip == 4", f"addresses are not compared: 'ip' at column 10; {FUNC}"),
        ("3 < new", "a comparison begins with a value: '3' at column 10; as in new < 10"),
        ("new <", f"the filter ends too early, at column 15; {FORM}"),
        ("new < %", f"no value: '%' at column 16; {FORM}"),
        ("new < 10 new", f"the filter goes on behind its end: 'new' at column 19; {FORM}"),
        ("(new", "a parenthesis of the filter is not closed, at column 14; add a `)`"),
        ("new < 0x1ffffffff", "it can never be that: '0x1ffffffff' at column 16; "
         "s32 holds -2147483648 to 2147483647"),
        ("new:u32 < -1", "it can never be that: '-1' at column 20; u32 holds 0 to 4294967295"),
        ("new < 1.5", "an integer is compared with integers: '1.5' at column 16; "
         "a float has :f64 or :f32 behind it, as in new:f64"),
        ("new:f32 & 1", "floats have no bits to test: '&' at column 18; "
         "use one of == != <= >= < >"),
        ("new:f32 < old", "it is no f32: 'old' at column 20; give both the same type"),
        ("new:f32 < inf", "infinity is not written in a filter: 'inf' at column 20; "
         "compare it with the greatest number, as in x > 1.7976931348623157e308"),
        ("new:f32 == nan", "nothing compares with NaN: 'nan' at column 21; "
         "write x != x, which is true for it"),
        ("new < old:u32", "a signed and an unsigned value have no order: '<' at column 14; "
         "give both types with a sign, or both without"),
        ("new == '3'", "a number is compared with a number: \"'3'\" at column 17; "
         "write it without quotes"),
        ("new ~ 3", "only strings are compared with ~: '~' at column 14"),
        ("new:s64 < 1", "more than is watched: 's64' at column 14; that is 4 bytes"),
        ("new:string < 1", "invalid type: 'string' at column 14; "
         "u8 to u64, s8 to s64, f32 or f64"),
        ("new: < 1", "invalid type, at column 14; u8 to u64, s8 to s64, f32 or f64"),
        ("tid:u32 == 1", "tid is a number of 32 bits: 'u32' at column 14; write tid"),
        ("func", f"func is compared with a function: 'func' at column 10; {FUNC}"),
        ("new == func", f"func is compared with a function: 'func' at column 17; {FUNC}"),
        ("func < sell", f"functions have no order: '<' at column 15; {FUNC}"),
        ("func == ", f"no function, at column 17; {FUNC}"),
        ("func == none", "no such function: 'none' at column 18; use another"),
        ("every(0)", "invalid number of every(): 'every(0)' at column 10; 1 to 2147483647"),
        ("first(1) || first(2)", "first() is used twice: 'first(2)' at column 22; "
         "a watch can have one of these"),
    ],
)  # fmt: skip
def test_what_is_said_of_filters(filter: str, message: str) -> None:
    request = parse_watch(f"s:rw- if {filter}")
    assert request.filter is not None

    def unknown(name: str) -> tuple[int, int]:
        raise UsageError(None, "no such function", "use another")

    with pytest.raises(UsageError) as error:
        filter_rows(request.filter, Values(type="s32", length=4), unknown)
    whole = f" of {f's:rw- if {filter}'.strip()!r}"
    clause, mark, hint = message.partition(";")
    assert str(error.value) == f"{clause}{whole}{mark}{hint}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s:rw- if", "no filter behind it: 'if' at column 7 of 's:rw- if'; as in if new < 10"),
        ("s:--- if new", "what is cleared records nothing: 'if new' at column 7 of 's:--- if new'; "
         "write s:---"),
        ("*:--- stack", "what is cleared records nothing: 'stack' at column 7 of '*:--- stack'; "
         "write *:---"),
        ("s:rw- stack fi", "neither stack nor if: 'fi' at column 13 of 's:rw- stack fi'; "
         "as in stock:rw- stack if new < 10"),
        ("s:rw- stack stack(2)", "stack is given twice: 'stack(2)' at column 13 of "
         "'s:rw- stack stack(2)'; leave one out"),
        ("s:rw- stack(0)", "invalid depth: '0' at column 13 of 's:rw- stack(0)'; 1 to 127"),
        ("s:rw- stack:fp", "stacks of watches are unwound, not walked: 'stack:fp' at column 7 of "
         "'s:rw- stack:fp'; write stack, or stack(DEPTH)"),
        ("s:rw if new", "missing operator: 'rw' at column 3 of 's:rw if new'; "
         "use three characters, such as rw- or -w-, or --- to clear"),
    ],
)  # fmt: skip
def test_what_is_said_of_words(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_watch(text)
    assert str(error.value) == message


def test_a_filter_of_too_many_steps() -> None:
    text = Token.of(" && ".join(["new < 10"] * (MAX_STEPS // 2 + 1)))
    with pytest.raises(UsageError, match="the filter is too long"):
        filter_rows(text, Values(type="s32", length=4), lambda _: (0, 0))
    fits = Token.of(" && ".join(["new < 10"] * (MAX_STEPS // 2)))
    assert len(filter_rows(fits, Values(type="s32", length=4), lambda _: (0, 0))) == MAX_STEPS - 1


@pytest.mark.parametrize(
    "text", ["s:rw- if new < 10", 'w@s+4:2 stack(5) if func == "a b"', "l.so:s:-w- stack"]
)
def test_a_watch_is_told_as_it_was_written(text: str) -> None:
    request = parse_watch(text)
    watch = Watch(
        symbol=request.symbol,
        offset=request.offset,
        address=0,
        length=request.length or 4,
        type=request.type,
        usual=request.length is None,
        library=request.library,
        filter=request.filter.text if request.filter else "",
        stack=request.stack,
    )
    assert watch_line(watch) == text
