# SPDX-License-Identifier: MIT
"""Values that a probe names as C++ does, and the lines of C++ and Rust: gdb and objdump tell the
same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.probe.test_source_values import GONE, _gdb, _named, _recorded
from tests.support.command import ftpatch

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
SOURCE = r"""
#include <cstdio>
#include <string>
#define NOINLINE __attribute__((noinline))
namespace shop {
enum class Color : unsigned char { Red, Green = 5 };
struct Base { int id; long common; };
struct Other { int id; short o; };
struct Item : Base { Color color; std::string name; };
struct Both : Base, Other { int own; };
struct Left : Base { int l; };
struct Right : Base { int r; };
struct Diamond : Left, Right { int d; };
struct Virtual : virtual Base { int v; };
struct Hides : Base { long id; };
int stock = 12;
namespace inner { int stock = 77; }
template <typename T> struct Box {
        T held; int n; Box *next;
        NOINLINE T get(T extra, const Box &other)
        { asm volatile(""); return held + extra + other.n; }
};
struct Cart {
        Item first; const Item &ref; Both both; int n;
        Cart(const Item &item) : first(item), ref(item), both(), n(7) {}
        NOINLINE int add(const Item &item, int q, Both &b, Diamond *dia, Virtual *vir, Hides &h)
        {
                asm volatile("" ::: "memory");
                n += q + item.id;
                stock -= q;
                return n + b.own + dia->d + vir->v + h.id + inner::stock;
        }
};
}
int main()
{
        shop::Item item; item.id = 3; item.common = -4; item.color = shop::Color::Green;
        item.name = "a text that is too long to be in its string";
        shop::Cart cart(item);
        shop::Both both{}; both.own = 1; both.o = -5;
        static_cast<shop::Base &>(both).id = 11; static_cast<shop::Other &>(both).id = 12;
        shop::Diamond dia{}; dia.d = 5; dia.l = 6; dia.r = -7;
        dia.Left::common = 21; dia.Right::common = 22;
        shop::Virtual vir{}; vir.v = 8;
        shop::Hides hides{}; hides.id = 1L << 40; hides.common = 9;
        int sum = 0;
        for (int i = 2; i < 4; i++)
                sum += cart.add(item, i, both, &dia, &vir, hides);
        shop::Box<int> whole{3, 4, &whole};
        shop::Box<double> real{3.5, 4, &real};
        sum += whole.get(2, whole) + real.get(2.5, real);
        item.name = "short";
        sum += cart.add(item, -9, both, &dia, &vir, hides);
        printf("%d\n", sum);
        return 0;
}
"""
ADD = (
    "this->n", "n", "item.id", "item.common", "item.color", "item.name", "q",
    "this->first.name._M_string_length", "this->ref.id", "this->ref.color", "b.own", "b.o",
    "b.common", "dia->d", "dia->l", "dia->r", "vir->v", "h.id", "h.common", "shop::stock",
    "shop::inner::stock", "this->both.own",
)  # fmt: skip
BASES = ("b.Base::id", "b.Other::id", "dia->Left::common", "dia->Right::common", "h.Base::id")
"""As gdb takes them, too, but for `shop::` before the base."""
BASE = re.compile(r"(?=\b(?:Base|Other|Left|Right)::)")
GET = ("this->held", "this->n", "extra", "other.n", "this->next->n")
FLAGS = {"g++": ("-g", "-fno-ipa-sra"), "clang++": ("-g", "-fstandalone-debug")}
"""Clang leaves std::string to the debug information of libstdc++, which gdb lacks here as well."""
COMPILERS = [(one, level) for one in ("g++", "clang++") for level in ("-O0", "-O2")]


def _built(folder: Path, *words: str) -> Path:
    (folder / "cart.cc").write_text(SOURCE)
    program = folder / "cart"
    subprocess.run([*words, "-no-pie", "cart.cc", "-o", program], check=True, cwd=folder)
    return program


def _kept(program: Path, function: str, names: tuple[str, ...]) -> dict[str, int]:
    """Names that can be fetched, and the function's address."""
    probes = [f"p:n{number} {function} {name}" for number, name in enumerate(names)]
    done = ftpatch("probe", program, *probes, "--dry-run", "--keep-going", "--json")
    return {names[int(str(row["name"])[1:])]: int(str(row["address"]), 16) for row in done.json}


def _theirs(text: str) -> str:
    """A value of gdb's as ftpatch shows it."""
    found = re.fullmatch(r"shop::Color::(\w+)", text)
    return found[1] if found else text


@pytest.mark.parametrize(("compiler", "level"), COMPILERS)
def test_as_gdb_prints_them(compiler: str, level: str, tmp_path: Path) -> None:
    program = _built(tmp_path, compiler, level, *FLAGS[compiler])
    names = tuple(one for one in (*ADD, *BASES) if one != "n")
    kept = _kept(program, "shop::Cart::add", names)
    assert len(kept) >= len(names) - 2 * (level == "-O2"), set(names) - set(kept)
    prints = [f"print {BASE.sub('shop::', one)}" for one in kept]
    star = "*" * (level == "-O2" and compiler == "g++")
    run = [f"break {star}shop::Cart::add", "run", *prints, "continue", *prints, "continue", *prints]
    rows = _recorded(program, f"p:a shop::Cart::add {_named(tuple(kept))}")
    mine = [str(value) for row in rows for value in row["values"].values()]  # type: ignore[attr-defined]
    expected = [_theirs(one) for one in _gdb(program, *run)]
    pairs = zip([*kept] * 3, mine, expected, strict=True)
    assert not [one for one in pairs if one[1] != one[2] and one[2] not in GONE]
    assert sum(one in GONE for one in expected) < 9


@pytest.mark.parametrize(("compiler", "level"), COMPILERS)
def test_templates(compiler: str, level: str, tmp_path: Path) -> None:
    program = _built(tmp_path, compiler, level, *FLAGS[compiler])
    for held, values in (("int", (3, 4, 2, 4, 4)), ("double", (3.5, 4, 2.5, 4, 4))):
        function = f"shop::Box<{held}>::get"
        kept = tuple(_kept(program, function, GET))
        assert kept == GET or (level == "-O2" and {"this->held", "extra"} <= {*kept})
        (row,) = _recorded(program, f"p:a {function} {_named(kept)}")
        expected = [value for name, value in zip(GET, values, strict=True) if name in kept]
        assert list(row["values"].values()) == expected  # type: ignore[attr-defined]
    if level == "-O0":
        assert "2 definitions" in ftpatch("probe", program, "p shop::Box::get", "--dry-run").err


REFUSED = [
    ("b.id", "b has 'id' in 2 bases: '.id' at column 20 of 'p shop::Cart::add b.id'; write "
     "Base::id or Other::id"),
    ("dia->common", "dia has 'common' in 2 bases: '->common' at column 22 of 'p shop::Cart::add "
     "dia->common'; write Left::common or Right::common"),
    ("dia->Base::id", "dia has the base 'Base' 2 times: "),
    ("vir->id", "vir has 'id' in a virtual base, whose place only its vtable tells: "),
    ("b.Bse::id", "b has no base 'Bse': '.Bse::id' at column 20 of 'p shop::Cart::add "
     "b.Bse::id'; did you mean Base"),
    ("shop::other::stock", "add has no such parameter: "),
]  # fmt: skip


def test_what_is_said_of_errors(tmp_path: Path) -> None:
    """Gdb finds the same names ambiguous."""
    program = _built(tmp_path, "g++", "-O0", "-g")
    for name, said in REFUSED:
        done = ftpatch("probe", program, f"p shop::Cart::add {name}", "--dry-run")
        assert done.code == 2 and done.err.startswith(f"ftpatch: {program}: {said}"), done.err
    words = ["-ex", "break shop::Cart::add", "-ex", "run", "-ex", "print b.id"]
    words += ["-ex", "print dia->common"]
    command = ["gdb", "-nx", "-batch", *words, str(program)]
    gdb = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert gdb.stderr.count("is ambiguous in type") == 2, gdb.stderr


@pytest.mark.parametrize("word", ["struct", "class", "union"])
def test_what_is_not_defined(word: str, tmp_path: Path) -> None:
    """Whether a member is named, or all of it, the same is said."""
    (tmp_path / "hidden.cc").write_text(
        f"{word} hidden;\n__attribute__((noinline)) int take(hidden *h) {{ return h != 0; }}\n"
        "int main() { return take(0); }\n"
    )
    subprocess.run(["g++", "-g", "hidden.cc", "-o", "hidden"], check=True, cwd=tmp_path)
    what = {"struct": "structure"}.get(word, word)
    for fetch, at in (("*h", "'*h' at column 8"), ("h->n", "'->n' at column 9")):
        done = ftpatch("probe", tmp_path / "hidden", f"p take {fetch}", "--dry-run")
        said = f"is a {what} that this source does not define: {at} of 'p take {fetch}'; take the "
        assert done.code == 2 and said + "bytes by their offset" in done.err, done.err


def _lines(program: Path, file: str) -> dict[int, set[int]]:
    """The statements of each line, as objdump reads the line table: address by line."""
    words = ["objdump", "--dwarf=decodedline", str(program)]
    table = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    out: dict[int, set[int]] = {}
    for name, line, address in re.findall(
        r"^(\S+)\s+(\d+)\s+0x([0-9a-f]+)(?:\[\d+\])?(?:\s+\d+)?\s+x\b", table, re.M
    ):
        if name == file:
            out.setdefault(int(line), set()).add(int(address, 16))
    return out


LANGUAGES = [
    ("g++", "cart.cc", "shop::Cart::add"),
    ("clang++", "cart.cc", "shop::Cart::add"),
    ("rustc", "values.rs", "values::cart::sell"),
]


@pytest.mark.parametrize(("compiler", "file", "function"), LANGUAGES)
def test_lines_as_objdump_reads_them(
    compiler: str, file: str, function: str, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    program = tmp_path / "cart"
    if compiler == "rustc":
        source = Path(__file__).parent.parent / "programs" / file
        shutil.copy(source, tmp_path)
        words = [compiler, "-g", "-A", "warnings", "-C", "relocation-model=static", file]
        subprocess.run([*words, "-o", program], check=True, cwd=tmp_path)
    else:
        program = _built(tmp_path, compiler, "-O0", "-g")
    told = ftpatch("probe", program, "--lines", function).out.splitlines()
    source_lines = (tmp_path / file).read_text().split("\n")
    numbers = {int(text[:6]) for text in told[1:] if text[:6].strip()}
    theirs = _lines(program, file)
    row = ftpatch("probe", program, f"p {function}", "--dry-run", "--json").json[0]
    start = int(str(row["address"]), 16)
    symbols = subprocess.run(["nm", "-nS", program], capture_output=True, text=True, check=True)
    sizes = {int(w[0], 16): int(w[1], 16) for w in map(str.split, symbols.stdout.splitlines())
             if len(w) == 4}  # fmt: skip
    end = start + sizes[start]
    assert numbers == {
        line for line, places in theirs.items() if any(start <= one < end for one in places)
    }
    for number in sorted(numbers):
        assert f"{number:>6}  {source_lines[number - 1]}".expandtabs().rstrip() in told
        done = ftpatch("probe", program, f"p {file}:{number}", "--dry-run", "--json")
        assert done.code == 0, done.err
        address = int(str(done.json[0]["address"]), 16)
        assert address == min(theirs[number]), number
        gdb = subprocess.run(
            ["gdb", "-nx", "-batch", "-ex", f"info line {file}:{number}", program],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert re.search(rf"Line {number} of .* address {address:#x}\b", gdb.stdout), gdb.stdout
