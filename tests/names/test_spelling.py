# SPDX-License-Identifier: MIT
"""Names as people write them, against c++filt's reading of the same names."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ftpatch.names.demangle import demangled
from ftpatch.names.spelling import SHORT, Wanted, like, spellings

ADD, ADD2, MOST = "_ZN4shop4Cart3addEi", "_ZN4shop4Cart3addEii", "_ZN4shop4mostIiEET_S1_S1_"
CLONE = "_ZN4shop4Cart5totalEv.isra.0"
EQUAL, AT = "_ZNK4shop4CarteqERKS0_", "_ZN4shop4CartixEi"
HIDDEN, GLOBAL = "_ZN12_GLOBAL__N_16hiddenEi", "_Z3addjPKc"
V0, V0_OF, TRAIT = (
    "_RNvMs0_NtCskK7mfDs1mzF_1m4shopNtB5_5Plain3one",
    "_RINvCskK7mfDs1mzF_1m4mostlEB2_",
    "_RNvXs_NtCskK7mfDs1mzF_1m4shopINtB4_4CarthENtB4_4Sell4sellB6_",
)
LEGACY = "_ZN1m4shop5Plain3one17hce5ac6dc186b3791E"
D, D_OF = "_D4shop4Cart3addMFiZi", "_D4shop__T4mostTiZQiFiiZi"
NAMES = [
    *(ADD, ADD2, MOST, CLONE, EQUAL, AT, HIDDEN, GLOBAL, V0, V0_OF, TRAIT, LEGACY, D, D_OF),
    *("main", "add.isra.0", "adder", "_DYNAMIC", "_Zebra", "_Rest"),
]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (ADD, [ADD]),
        ("_ZN4shop4Cart3add*", [ADD, ADD2]),
        ("shop::Cart::add", [ADD, ADD2]),
        ("shop::Cart::add(int)", [ADD]),
        ("shop::Cart::add(int, int)", [ADD2]),
        ("shop::Cart::add(int,int)", [ADD2]),
        ("shop::Cart::*", [ADD, ADD2, CLONE, EQUAL, AT]),
        ("shop::Cart::add(*)", [ADD, ADD2]),
        ("shop::Cart::a??", [ADD, ADD2]),
        ("*::add", [ADD, ADD2]),
        ("*Cart*", [ADD, ADD2, CLONE, EQUAL, AT, TRAIT, D]),
        ("Cart::add", []),
        ("add", [GLOBAL]),
        ("add(unsigned int, char const*)", [GLOBAL]),
        ("add(unsignedint,charconst*)", [GLOBAL]),
        ("add*", [GLOBAL, "add.isra.0", "adder"]),
        ("i*", []),  # not what a template returns
        ("int shop::*", [MOST]),
        ("shop::most<int>", [MOST]),
        ("shop::most<int>(int, int)", [MOST]),
        ("int shop::most<int>(int, int)", [MOST]),
        ("shop::most", [MOST]),  # every instance of a template
        ("shop::Cart::total", [CLONE]),
        ("shop::Cart::total()", [CLONE]),
        ("shop::Cart::operator==", [EQUAL]),
        ("shop::Cart::operator==(shop::Cart const&) const", [EQUAL]),
        ("shop::Cart::operator[]", [AT]),
        ("shop::Cart::operator[](int)", [AT]),
        ("(anonymous namespace)::hidden", [HIDDEN]),
        ("(anonymous namespace)::*", [HIDDEN]),
        ("m::shop::Plain::one", [V0, LEGACY]),
        ("<m::shop::Plain>::one", [V0]),
        ("m::most", [V0_OF]),
        ("m::most::<i32>", [V0_OF]),
        ("<m::shop::Cart<u8> as m::shop::Sell>::sell", [TRAIT]),
        ("shop.Cart.add", [D]),
        ("shop.Cart.add(int)", [D]),
        ("shop.*", [D, D_OF]),
        ("shop.most!(int).most", [D_OF]),
        ("main", ["main"]),
        ("_D*", [D, D_OF, "_DYNAMIC"]),
        ("_Z*a", ["_Zebra"]),
        ("", []),
    ],
)
def test_what_a_filter_means(text: str, meant: list[str]) -> None:
    hit = Wanted(text).match(NAMES)
    assert [name for name, ok in zip(NAMES, hit.tolist(), strict=True) if ok] == meant
    # Reports have read the names already: what a source says means the same there.
    if not text.startswith("_"):
        shown = [demangled(name) for name in NAMES]
        again = Wanted(text).match(shown)
        assert again.tolist() == hit.tolist()
    elif "*" not in text:
        assert Wanted(text).matches(demangled(text))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"shop::Cart::add\(int\)", [ADD]),
        (r"shop::Cart::add\(int, int\)", [ADD2]),
        (r"shop::Cart::add\(int,int\)", [ADD2]),
        (r"shop::Cart::(add|total)", [ADD, ADD2, CLONE]),
        (r".*Cart3add.*", [ADD, ADD2, D]),
        (r"add", [GLOBAL]),
    ],
)
def test_what_an_expression_means(text: str, meant: list[str]) -> None:
    hit = Wanted(text, regex=True).match(NAMES)
    assert [name for name, ok in zip(NAMES, hit.tolist(), strict=True) if ok] == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("shop::Cart::ad", "shop::Cart::add"),
        ("shop::Crt::add", "shop::Cart::add"),
        ("shop::Cart::ad*", "shop::Cart::add"),
        ("totla", "shop::Cart::total"),
        ("hiden", "(anonymous namespace)::hidden"),
        ("mian", "main"),
        ("!mian", "main"),
        ("m::shop::Plane::one", "m::shop::Plain::one"),
        ("shop.Cart.ad", "shop.Cart.add"),
        ("most", "shop::most"),
        ("shop::most<in>", "shop::most<int>"),
    ],
)
def test_what_was_perhaps_meant(text: str, meant: str) -> None:
    assert meant in like(text, NAMES)


def test_nothing_is_offered_for_what_is_like_nothing() -> None:
    for text in ("qqqqqq", "*", "", "x", "!", "[a-z]*"):
        assert not like(text, NAMES)


LIBRARIES = sorted(Path("/usr/lib").glob("*/libstdc++.so.6"))


@pytest.fixture(scope="module")
def library() -> dict[str, str]:
    """Names of a real library, and what c++filt says of them."""
    if not LIBRARIES or shutil.which("c++filt") is None:
        pytest.skip("needs libstdc++ and c++filt")
    done = subprocess.run(
        ["nm", "-D", "--defined-only", "--without-symbol-versions", LIBRARIES[0]],
        capture_output=True,
        text=True,
        check=True,
    )
    names = sorted({line.split()[-1] for line in done.stdout.splitlines()})
    names = [name for name in names if name.startswith("_Z") and name[2] not in "TG"]
    done = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    )
    return dict(zip(names, done.stdout.splitlines(), strict=True))


def test_every_name_is_found_as_c_plus_plus_filt_has_it(library: dict[str, str]) -> None:
    """Also by a glob that any part of it became: looking for words beforehand loses none."""
    numbers = random.Random(5)
    names = numbers.sample(sorted(library), 300)
    for name in names:
        source = library[name]
        assert source == demangled(name) == spellings(name)[-1]
        assert Wanted(source).matches(name) and Wanted(source.replace(" ", "")).matches(name)
        begin, end = sorted(numbers.sample(range(len(source) + 1), 2))
        glob = f"{source[:begin]}*{source[end:]}"
        if "[" in glob or " " not in glob:  # with one, what it returns counts
            continue
        others = [other for other in names if fnmatchcase(library[other], glob)]
        assert name in others
        assert Wanted(glob).match(others).all(), glob


def test_mangled_names_spell_all_words_but_known_ones(library: dict[str, str]) -> None:
    words = {
        word
        for name, source in library.items()
        for word in re.findall(r"[A-Za-z_]\w{2,}", source, re.ASCII)
        if word not in name
    }
    assert words <= set(SHORT)


@pytest.mark.parametrize(
    "name", [D, D_OF, "_D3std5stdio__T7writelnTAyaZQnFNfQjZv", "_D4shop3addFAaAiZv"]
)
def test_names_of_d_are_those_of_c_plus_plus_filt(name: str) -> None:
    if shutil.which("c++filt") is None:
        pytest.skip("needs c++filt")
    words = ["c++filt", "-s", "dlang", name]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert said == demangled(name) and Wanted(said).matches(name)


def _doubling(steps: int) -> str:
    """f(A<int, int>, A<A<int, int>, A<int, int>>, ...): twice as long with each step."""
    numbers = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "_Z1f1AIiiE" + "".join(f"S_IS{n}_S{n}_E" for n in numbers[:steps])


def test_hostile_names_stay_small_and_take_no_time() -> None:
    """A file of 16 MB has room for 100,000 names that would be 60 KB each."""
    names = [_doubling(9) + f"{n}x" * 3 for n in range(2000)]
    names += [_doubling(n) for n in range(36)]
    names += ["_Z" + "N" * 60000, "_R" + "I" * 60000, "_D" + "9" * 5000, "_ZN" + "4abcd" * 12000]
    names += ["_Z1fI" + "(" * 10000, "f" + "(" * 50000, "(" * 20000 + ")" * 20000, "<" * 50000]
    begun = time.process_time()
    for text in ("nothing::*", "a::b(int)", "*A<int*"):
        Wanted(text).match(names)
    like("f::nothing", names)
    assert time.process_time() - begun < 20
    for name in names:
        assert len(spellings(name)[-1]) <= max(len(name), 1024 + 40 * len(name))
