# SPDX-License-Identifier: MIT
"""What names of the source cost in a large program: with each table by which units are found, and
without one, against gdb's `info scope`.

usage: python bench/debug_info.py [UNITS]

Each unit is C++ that instantiates much of the standard library. `ftpatch probe --dry-run` does all
but write the file; what it takes without names of the source is not of debug information.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import ROUNDS, seconds

UNITS = 60
UNIT = """
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
struct Item%(n)d { int id; long price; std::string name; };
struct Customer%(n)d {
    const char *name;
    Item%(n)d items[3];
    std::map<std::string, Item%(n)d> more;
};
extern "C" __attribute__((noinline)) int sell%(n)d(Customer%(n)d *customer, int qty)
{
    std::vector<Item%(n)d> all;
    std::unordered_map<int, std::shared_ptr<Item%(n)d>> known;
    for (auto &one : customer->items) {
        all.push_back(one);
        known[one.id] = std::make_shared<Item%(n)d>(one);
    }
    std::sort(all.begin(), all.end(), [](const Item%(n)d &a, const Item%(n)d &b) {
        return a.id < b.id;
    });
    std::function<int(int)> more = [&](int a) { return a + qty; };
    customer->more["x"] = all[0];
    return more(all[0].id) + (int)known.size();
}
extern "C" int call%(n)d(int n) { Customer%(n)d one{}; return sell%(n)d(&one, n); }
"""
TABLES = {
    "no table": [],
    ".debug_names": ["-gpubnames"],
    ".debug_aranges": ["-gdwarf-aranges"],
    ".gdb_index": ["-ggnu-pubnames", "-fuse-ld=lld", "-Wl,--gdb-index"],
}
"""What clang is told, to make each."""


def built(folder: Path, units: int, options: list[str]) -> Path:
    """A program of so many units, with a table."""
    names = [f"call{n}" for n in range(units)]
    declared = "".join(f'extern "C" int {name}(int);\n' for name in names)
    called = " + ".join(f"{name}(n)" for name in names)
    (folder / "main.cc").write_text(f"{declared}int main(int n, char **) {{ return {called}; }}\n")
    linked = [one for one in options if one.startswith(("-f", "-W"))]
    compiled = ["clang++", "-gdwarf-5", *(one for one in options if one not in linked), "-c"]
    for n in range(units):
        (folder / f"unit{n}.cc").write_text(UNIT % {"n": n})
    for source in sorted(folder.glob("*.cc")):
        subprocess.run([*compiled, source.name], check=True, cwd=folder)
    objects = [one.name for one in sorted(folder.glob("*.o"))]
    subprocess.run(["clang++", *linked, *objects, "-o", "prog"], check=True, cwd=folder)
    return folder / "prog"


def main() -> None:
    """Print the ratios."""
    units = int(sys.argv[1]) if len(sys.argv) > 1 else UNITS
    if shutil.which("clang++") is None or shutil.which("gdb") is None:
        print("names of the source: needs clang++ and gdb")
        return
    symbol = f"sell{units * 3 // 4}"
    print(f"a probe with names, {units} units of C++ by clang: ours, gdb, ratio; without names")
    for name, options in TABLES.items():
        with tempfile.TemporaryDirectory() as folder:
            program = str(built(Path(folder), units, options))
            probe = [sys.executable, "-m", "ftpatch", "probe", program, "--dry-run", "-q"]
            named = [*probe, f"p:a {symbol} customer->name qty"]
            plain = [*probe, f"p:a {symbol}"]
            gdb = ["gdb", "-nx", "-batch", "-ex", f"info scope {symbol}", program]
            seconds(gdb)  # warm cache
            rows = [(seconds(named), seconds(plain), seconds(gdb)) for _ in range(ROUNDS)]
        ours, without, theirs = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(a / c for a, _, c in rows)
        print(f"  {name:<42} {ours:5.2f} s {theirs:5.2f} s  x{ratio:4.2f}  {without:5.2f} s")


if __name__ == "__main__":
    main()
