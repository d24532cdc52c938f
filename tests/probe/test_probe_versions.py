# SPDX-License-Identifier: MIT
"""Functions of which a library has several versions: the linker's own choice is the oracle."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ftpatch.elf.symbol_versions import symbol_versions
from ftpatch.errors import FtpatchError
from ftpatch.image import open_image
from tests.support.command import child_env, ftpatch, ftpatch_command
from tests.support.sampling import FUZZ

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
LIBRARY = r"""
#define APART __attribute__((noipa))
static volatile int held;
APART int old_price(int n) { held++; return n; }
APART int middle_price(int n) { held++; return n + 10; }
APART int new_price(int n) { held++; return n + 100; }
APART int first_gone(int n) { held++; return n + 1000; }
APART int second_gone(int n) { held++; return n + 2000; }
__asm__(".symver old_price,price@SHOP_1");
__asm__(".symver middle_price,price@SHOP_2");
__asm__(".symver new_price,price@@SHOP_3");
__asm__(".symver first_gone,gone@SHOP_1");
__asm__(".symver second_gone,gone@SHOP_2");
"""
MAP = "SHOP_1 { global: price; gone; local: *; };\nSHOP_2 {} SHOP_1;\nSHOP_3 {} SHOP_2;\n"
PROGRAM = r"""
#include <stdio.h>
int price(int n);
int old_price(int n);
int gone(int n);
__asm__(".symver old_price,price@SHOP_1");
__asm__(".symver gone,gone@SHOP_2");
int main(void)
{
	printf("%d", price(1));
	for (int i = 0; i < 3; i++)
		printf(" %d", old_price(i));
	printf(" %d\n", gone(5));
	return 0;
}
"""
SAID = "101 0 1 2 2005\n"


def _built(folder: Path, *flags: str) -> Path:
    (folder / "shop.map").write_text(MAP)
    library = folder / "libshop.so"
    words = ["gcc", "-O1", "-shared", "-fpic", f"-Wl,--version-script={folder}/shop.map", *flags]
    words += ["-Wl,-soname,libshop.so", "-x", "c", "-", "-o", str(library)]
    subprocess.run(words, input=LIBRARY.encode(), check=True)
    words = ["gcc", "-O1", "-x", "c", "-", "-x", "none", str(library), f"-Wl,-rpath,{folder}"]
    subprocess.run([*words, "-o", folder / "shop"], input=PROGRAM.encode(), check=True)
    return folder / "shop"


def _hits(program: Path, probes: Sequence[str]) -> dict[str, int]:
    done = subprocess.run(
        ftpatch_command("probe", *probes, "-c", program),
        env=child_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.startswith(SAID), done.stderr
    rows = (line.split() for line in done.stdout.splitlines() if line.startswith("# "))
    return {row[1]: int(row[3]) for row in rows if len(row) == 5 and row[3].isdigit()}


@pytest.mark.parametrize("flags", [(), ("-s",)], ids=["symbols", "stripped"])
def test_the_default_and_those_by_name(flags: tuple[str, ...], tmp_path: Path) -> None:
    program = _built(tmp_path, *flags)
    probes = ["p:bare libshop.so:price", "p:default libshop.so:price@SHOP_3"]
    probes += ["p:nm libshop.so:price@@SHOP_3", "p:old libshop.so:price@SHOP_1"]
    probes += ["r:back libshop.so:price@SHOP_1 ret=$retval:s32", "p libshop.so:gone@SHOP_2"]
    probes += ["p:middle libshop.so:price@SHOP_2", "p:in libc.so.6:printf if within(price)"]
    probes[-1:] = ["p:own libshop.so:price@SHOP_1 if !within(libshop.so:price@SHOP_1)"]
    assert _hits(program, probes) == {
        "bare": 1,
        "default": 1,
        "nm": 1,
        "old": 3,
        "back": 3,
        "middle": 0,
        "own": 3,
        "p_gone_SHOP_2_0": 1,
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("price@SHOP_9", "'price' has no version 'SHOP_9'; use price@SHOP_1"),
        ("price@@SHOP_1", "'price' has no version 'SHOP_1'; use price@SHOP_1"),
        ("gone", "symbol 'gone' is ambiguous (2 definitions); use one of gone@SHOP_1, gone@SHOP_2"),
        ("price@libshop.so", "'price' has no version 'libshop.so'"),
        ("prise@SHOP_1", "no such function 'prise@SHOP_1'; did you mean price?"),
    ],
)
def test_versions_that_are_none(name: str, said: str, tmp_path: Path) -> None:
    program = _built(tmp_path, "-s")
    done = ftpatch("probe", program, f"p libshop.so:{name}", "-o", tmp_path / "out")
    assert done.code == 2 and done.err.count("\n") == 1, done.err
    assert f"{tmp_path}/libshop.so: {said}" in done.err


def test_a_copy_of_the_library(tmp_path: Path) -> None:
    program = _built(tmp_path, "-s")
    probes = ("p:default libshop.so:price", "p:old libshop.so:price@SHOP_1 n=$arg1:s32")
    done = ftpatch("probe", program, *probes, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    environment = {**os.environ, "FTPATCH_TRACE": str(tmp_path / "trace")}
    words = [tmp_path / "out"]
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == SAID
    rows = ftpatch("report", tmp_path / "trace", "--json").json
    hits = {row["probe"]: row["hits"] for row in rows if "missed" in row}
    assert hits == {"default": 1, "old": 3}


def test_as_gdb_finds_them(tmp_path: Path) -> None:
    """Of libm's hypot(), which has had another version since glibc 2.35."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    source = "#include <math.h>\nint main(int n, char **w) { return hypot(n, !w) < 0; }\n"
    words = ["gcc", "-fno-builtin", "-x", "c", "-", "-lm", "-o", str(tmp_path / "far")]
    subprocess.run(words, input=source.encode(), check=True)
    asked = ["gdb", "-batch", "-ex", "start", "-ex", "p (long)hypot"]
    asked += ["-ex", "info proc mappings", str(tmp_path / "far")]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    at = next((int(line.split()[-1]) for line in told.splitlines() if line.startswith("$1")), 0)
    maps = [line.split() for line in told.splitlines() if "/libm" in line and "0x" in line]
    if not at or not maps:
        pytest.skip("gdb tells no address")
    done = ftpatch("probe", tmp_path / "far", "p libm.so.6:hypot", "--dry-run", "--json")
    assert done.code == 0, done.err
    (row,) = (one for one in done.json if "address" in one)
    assert int(row["address"], 16) == at - int(maps[0][0], 16)


def test_damaged_tables(tmp_path: Path) -> None:
    library = _built(tmp_path, "-s").with_name("libshop.so")
    image = open_image(library)
    versions = symbol_versions(image.elf, len(image.dynamic_symbols))
    rows = image.dynamic_symbols.rows_named("price")
    assert sorted(map(versions.name, rows.tolist())) == ["SHOP_1", "SHOP_2", "SHOP_3"]
    assert [versions.name(row) for row in versions.default(rows).tolist()] == ["SHOP_3"]
    assert not len(symbol_versions(image.elf, 1 << 40).number)
    # The versions' tables are in front of the code.
    rng, data = random.Random(FUZZ), library.read_bytes()
    for _ in range(300):
        held = bytearray(data)
        for _ in range(rng.randrange(1, 8)):
            held[rng.randrange(0x40, 0x1000)] = rng.choice((0, 1, 0xFF, rng.randrange(256)))
        library.write_bytes(held)
        with suppress(FtpatchError):
            found = open_image(library)
            some = symbol_versions(found.elf, len(found.dynamic_symbols))
            assert all(isinstance(some.name(row), str) for row in range(20))
