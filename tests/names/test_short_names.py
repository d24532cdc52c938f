# SPDX-License-Identifier: MIT
"""Names without what is long in them, against names that were put together of known parts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.names.short_names import fitted, short_name, without_arguments

SAME = "the same"
WORDS = st.sampled_from(["shop", "Cart", "vector", "x1", "operator<<", "operator->", "operator>"])
LONG = st.sampled_from(
    [
        "std::allocator<int>",
        "int, (1 > 2)",
        "void (*)(std::set<int>)",
        "&(shop::operator<)",
        "Fn() -> u8",
        "{lambda(int)#1}",
        "(char)62",
    ]
)


@given(st.lists(st.tuples(WORDS, st.one_of(st.just(""), LONG)), min_size=1, max_size=4))
def test_template_arguments_are_left_out(parts: list[tuple[str, str]]) -> None:
    whole, short = [], []
    for word, inner in parts:
        space = " " if word.startswith("operator") else ""
        whole.append(f"{word}{space}<{inner}>" if inner else word)
        short.append(f"{word}{space}<…>" if inner else word)
    assert short_name("::".join(whole)) == "::".join(short)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("main", "main"),
        ("", ""),
        ("shop::most<int>(int)", "shop::most<int>(int)"),
        ("f(std::set<int, std::less<int> > const&)", "f(std::set<…> const&)"),
        ("shop::Cart::operator()<float>(float)", "shop::Cart::operator()<float>(float)"),
        ("shop::Cart::operator()<float const&>(int)", "shop::Cart::operator()<…>(int)"),
        ("shop::operator<=>(shop::Cart, int)", "shop::operator<=>(shop::Cart, int)"),
        (
            "<shop::Cart<u8, u16> as core::fmt::Debug>::fmt",
            "<shop::Cart<…> as core::fmt::Debug>::fmt",
        ),
        ("shop::add::<alloc::vec::Vec<u8>>", "shop::add::<…>"),
        ("core::num::<impl Debug for i32>::fmt", "core::num::<impl Debug for i32>::fmt"),
        ('sort!("a < b", 0)(int)', "sort!(…)(int)"),
        ("broken<std::set<int>", "broken<std::set<int>"),
        ("a < b", "a < b"),
        ("int shop::most<int>(int)", "shop::most<int>(int)"),
        ("std::set<int, std::less<int> > shop::all<int>() const", "shop::all<int>() const"),
        ("decltype(auto) (anonymous namespace)::f<int>(int)", "(anonymous namespace)::f<int>(int)"),
        ("void (*shop::pick<int>(int))(char)", "void (*shop::pick<int>(int))(char)"),
        ("shop::Cart<int>::operator unsigned long() const", SAME),
        ("non-virtual thunk to shop::Cart<int>::add(int)", SAME),
        ("transaction clone for shop::add(int)", SAME),
        (
            "std::ostream& operator<< <char>(std::ostream&, char)",
            "operator<< <char>(std::ostream&, char)",
        ),
    ],
)
def test_examples(name: str, short: str) -> None:
    assert short_name(name) == (name if short == SAME else short)


@pytest.mark.parametrize(
    ("name", "room", "shown"),
    [
        ("int shop::most<…>(int)", 22, "int shop::most<…>(int)"),
        ("int shop::most<…>(int)", 21, "shop::most<…>(…)"),
        ("int shop::most<…>(int)", 15, "shop::most<…>"),
        ("int shop::most<…>(int)", 12, "…::most<…>"),
        ("shop::Cart::add(int) const", 20, "shop::Cart::add(…)"),
        ("shop::operator<(shop::Cart, int)", 20, "shop::operator<(…)"),
        ("some_function_of_c", 8, "some_fu…"),
        ("n::some_function_of_cpp", 8, "…_of_cpp"),
    ],
)
def test_names_in_little_room(name: str, room: int, shown: str) -> None:
    """The end of a C++ name tells most."""
    assert fitted(name, room) == shown
    assert len(shown) <= room


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        (
            "std::vector<int, std::allocator<int> >::push_back(int&&)",
            "std::vector::push_back(int&&)",
        ),
        ("core::iter::map::<alloc::vec::Vec<u8>>", "core::iter::map"),
        ("shop::operator<< <char>(int)", "shop::operator<< (int)"),
        ("shop::operator<(int)", "shop::operator<(int)"),
        ("<shop::Cart<u8> as Drop>::drop", "<shop::Cart as Drop>::drop"),
    ],
)
def test_names_without_arguments(name: str, bare: str) -> None:
    assert without_arguments(name) == bare


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_names_of_a_compiler(tmp_path: Path) -> None:
    """Of functions of the standard library's templates no argument stays, and brackets match."""
    source = tmp_path / "x.cc"
    source.write_text(
        "#include <map>\n#include <string>\n#include <algorithm>\n#include <vector>\n"
        'int main() { std::map<std::string, std::vector<int>> m; m["a"].push_back(1);\n'
        '  auto &v = m["a"]; std::sort(v.begin(), v.end(), [](int a, int b) { return a > b; });\n'
        "  return v.size(); }\n"
    )
    subprocess.run(["g++", "-O0", "-c", source, "-o", tmp_path / "x.o"], check=True)
    words = ["nm", "-C", "--defined-only", "--format=posix", str(tmp_path / "x.o")]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    names = [line.rsplit(" ", 3)[0] for line in told.splitlines()]
    many = [name for name in names if "> >" in name]
    assert len(many) > 50
    for name in many:
        short = short_name(name)
        assert "> >" not in short and len(short) < len(name)
        bare = short.replace("->", "").replace("operator<", "").replace("operator>", "")
        for opened, closed in ("<>", "()", "{}"):
            assert bare.count(opened) == bare.count(closed), short
