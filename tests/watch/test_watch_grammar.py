# SPDX-License-Identifier: MIT
"""Watches: what requests mean, what is said of malformed ones, and how a watch is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.errors import UsageError
from ftpatch.watch import Request, Watch, parse_watch, watch_line

FORM = "use SYMBOL:rw-, SYMBOL:-w- or w@SYMBOL"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("counter:rw-", Request("counter", 0, None, "rw-")),
        (" counter:-w-\n", Request("counter", 0, None, "-w-")),
        ("counter:r--", Request("counter", 0, None, "r--")),
        ("counter:---", Request("counter", 0, None, "---")),
        ("*:---", Request("*", 0, None, "---")),
        ("table+0x10:-w-", Request("table", 16, None, "-w-")),
        ("w@counter", Request("counter", 0, None, "-w-")),
        ("r@counter", Request("counter", 0, None, "r--")),
        ("rw@table+16:2", Request("table", 16, 2, "rw-")),
        ("environ@GLIBC_2.2.5:rw-", Request("environ@GLIBC_2.2.5", 0, None, "rw-")),
        ("w@environ@GLIBC_2.2.5:8", Request("environ@GLIBC_2.2.5", 0, 8, "-w-")),
        ("env@V:rw-", Request("env@V", 0, None, "rw-")),
        ("shop::Cart::total:rw-", Request("shop::Cart::total", 0, None, "rw-")),
        ("w@shop::total+4:2", Request("shop::total", 4, 2, "-w-")),
        ("shop::names[abi:cxx11]:-w-", Request("shop::names[abi:cxx11]", 0, None, "-w-")),
        ("(anonymous namespace)::own:rw-", Request("(anonymous namespace)::own", 0, None, "rw-")),
        ("sell(int, long)::calls:rw-", Request("sell(int, long)::calls", 0, None, "rw-")),
        ("box<int>:rw-", Request("box<int>", 0, None, "rw-")),
        ("std::cout@V1:rw-", Request("std::cout@V1", 0, None, "rw-")),
        ("0x4010:rw-", Request("0x4010", 0, None, "rw-")),
        ("w@0x4010+8:8", Request("0x4010", 8, 8, "-w-")),
    ],
)
def test_requests(text: str, wanted: Request) -> None:
    assert parse_watch(text) == wanted


ONE_COLON = "`:` separates the symbol from the operators"
THREE = "use three characters, such as rw- or -w-, or --- to clear"
PLACES = "r comes first, w second, x third"
EXECUTION = "trace the function, or set a probe"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"empty request; {FORM}"),
        ("m:s:rw-", f"more than one `:`: ':rw-' at column 4 of 'm:s:rw-'; {ONE_COLON}"),
        ("w@s:4:4", f"more than one `:`: ':4' at column 6 of 'w@s:4:4'; {ONE_COLON}"),
        ("shop::total", f"no `:` in the request: 'shop::total'; {FORM}"),
        ("a::b:c:rw-", "more than one `:`: ':rw-' at column 7 of 'a::b:c:rw-'; " + ONE_COLON),
        ("counter", f"no `:` in the request: 'counter'; {FORM}"),
        ("s:rw", f"missing operator: 'rw' at column 3 of 's:rw'; {THREE}"),
        ("s:", f"missing operator, at column 3 of 's:'; {THREE}"),
        ("s:rw--", "too many operators: 'rw--' at column 3 of 's:rw--'; use rw- or -w-"),
        ("s:rr-", "repeated operator: 'r' at column 4 of 's:rr-'; use each at most once"),
        ("s:wr-", f"misplaced operator: 'w' at column 3 of 's:wr-'; {PLACES}"),
        ("s:--w", f"misplaced operator: 'w' at column 5 of 's:--w'; {PLACES}"),
        ("s:rW-", "unknown operator: 'W' at column 4 of 's:rW-'; one of r w x -"),
        ("s:--x", f"execution cannot be watched: 'x' at column 5 of 's:--x'; {EXECUTION}"),
        ("s:rwx", f"execution cannot be watched: 'x' at column 5 of 's:rwx'; {EXECUTION}"),
        (":rw-", f"no symbol in the request, at column 1 of ':rw-'; {FORM}"),
        ("+4:rw-", f"no symbol in the request: '+4' at column 1 of '+4:rw-'; {FORM}"),
        ("1s:rw-", "invalid symbol: '1s' at column 1 of '1s:rw-'; "
         "use SYMBOL or SYMBOL+OFFSET"),
        ("s-4:rw-", "invalid symbol: 's-4' at column 1 of 's-4:rw-'; "
         "use SYMBOL or SYMBOL+OFFSET"),
        ("*:rw-", "invalid symbol: '*' at column 1 of '*:rw-'; use SYMBOL or SYMBOL+OFFSET"),
        ("s+:rw-", "invalid offset, at column 3 of 's+:rw-'; "
         "use a number of bytes, as in table+16"),
        ("s+x:rw-", "invalid offset: 'x' at column 3 of 's+x:rw-'; "
         "use a number of bytes, as in table+16"),
        ("@s", "no type before the `@`, at column 1 of '@s'; use r@, w@ or rw@"),
        ("k@s:4", "unknown operator: 'k' at column 1 of 'k@s:4'; one of r w x"),
        ("-w-@s", "unknown operator: '-' at column 1 of '-w-@s'; one of r w x"),
        ("ww@s", "repeated operator: 'w' at column 2 of 'ww@s'; use each at most once"),
        ("wr@s", "misplaced operator: 'wr' at column 1 of 'wr@s'; write rw@"),
        ("x@s", f"execution cannot be watched: 'x' at column 1 of 'x@s'; {EXECUTION}"),
        ("w@", f"no symbol in the request, at column 3 of 'w@'; {FORM}"),
        ("w@s:", "invalid length, at column 5 of 'w@s:'; use 1, 2, 4 or 8 bytes"),
        ("w@s:3", "invalid length: '3' at column 5 of 'w@s:3'; use 1, 2, 4 or 8 bytes"),
        ("w@s:rw-", "invalid length: 'rw-' at column 5 of 'w@s:rw-'; use 1, 2, 4 or 8 bytes"),
        ("w@s+q:4", "invalid offset: 'q' at column 5 of 'w@s+q:4'; "
         "use a number of bytes, as in table+16"),
    ],
)  # fmt: skip
def test_what_is_said_of_requests(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_watch(text)
    assert str(error.value) == message and error.value.path is None


LETTERS = st.text("srwx-@:+0124*", max_size=12)


@given(st.one_of(st.text(), LETTERS, LETTERS.map("counter{}".format)))
def test_any_text_means_something_or_is_refused(text: str) -> None:
    try:
        request = parse_watch(text)
    except UsageError as error:
        assert "\n" not in str(error) and str(error).isprintable()
    else:
        assert request.type in ("rw-", "-w-", "r--", "---")
        assert request.length in (None, 1, 2, 4, 8)


SYMBOLS = st.one_of(
    st.from_regex(r"[A-Za-z_.][A-Za-z0-9_$?~][A-Za-z0-9_.$?~@]{0,12}", fullmatch=True),
    st.from_regex(r"[rwx]{1,3}@{1,2}[rwxV1@]{0,4}", fullmatch=True),
)
WATCHES = st.builds(
    Watch,
    symbol=SYMBOLS,
    offset=st.integers(0, (1 << 64) - 1),
    address=st.just(0),
    length=st.sampled_from([1, 2, 4, 8]),
    type=st.sampled_from(["rw-", "-w-", "r--"]),
    usual=st.booleans(),
)


@given(WATCHES)
def test_a_line_means_its_watch(watch: Watch) -> None:
    length = None if watch.usual else watch.length
    wanted = Request(watch.symbol, watch.offset, length, watch.type)
    assert parse_watch(watch_line(watch)) == wanted
