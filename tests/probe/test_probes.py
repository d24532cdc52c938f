# SPDX-License-Identifier: MIT
"""`ftpatch probe`: what it lays in, what it records, and what it refuses."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.cross_root import CROSS, use_cross_root
from tests.support.tracer_programs import ARCHES, Form, libraries, run
from tests.support.user_stubs import OWN_FLAGS

SOURCE = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

short table[4] = {1, -2, 3, -4};
long counter = 40;
struct node { struct node *next; char *name; } second = {0, "last"}, first = {&second, "first"};
static jmp_buf out;

__attribute__((noinline)) long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) int take(struct node *node, const char *text, int number,
                                   unsigned char small, long five, long six, long seven)
{
        counter += number;
        five += six + seven;
        return -printf("%s %s %d %d %ld\n", node->name, text, number, small, five);
}
__attribute__((noinline)) void leaves(int n)
{
        if (n > 3)
                longjmp(out, n);
        leaves(n + 1);
        puts("no");
}
__attribute__((noinline)) void *ends(void *n) { if (n) pthread_exit(n); return n; }
__attribute__((noinline)) int quiet(void) { return 7; }

int main(int argc, char **argv)
{
        pthread_t thread;

        take(&first, "a \"text\"", -5, 200, 1, 2, 3);
        take(&second, (char *)8, 6, 1, 4, 5, 6);
        return 0;
}
"""
SAFE = SOURCE.replace("take(&second, (char *)8", 'take(&second, "b"')
LOOPS = SOURCE.replace(
    "take(&first",
    """for (int i = 0; i < 50; i++) {
                if (!setjmp(out))
                        leaves(0);
                pthread_create(&thread, 0, ends, (void *)(long)(i & 1));
                pthread_join(thread, 0);
        }
        printf("%ld\\n", fib(15));
        take(&first""",
    1,
).replace("(char *)8", '"b"')
UNTRAPPED = ("riscv64", "ppc64le", "s390x", "arm")
"""Architectures without traps."""
ARCHES_PROBED = ("x86_64", "i386", "arm64", "loongarch64", *UNTRAPPED)
TAKE = (
    "p:take take name=+0(+8($arg1)):string text=+0($arg2):string number=$arg3:s32 small=$arg4:u8 "
    "six=$arg6 last=+0(+8(+0($arg1))):string none=+0(+0(+0($arg1))):u64 second=@table+2:s16 "
    "counter=@counter:s64 what=$comm five=\\5 far=+8($stack):x8"
)
NARROW = TAKE.replace("+8(", "+4(").replace("@counter:s64", "@counter:s32")
"""The same where addresses have four bytes."""


def _built(text: str, folder: Path, form: Form) -> Path:
    source = folder / "probed.c"
    source.write_text(text)
    program = folder / "probed"
    words = [*form.command(source), f"-{form.link}", "-pthread", str(source), "-o", str(program)]
    subprocess.run([*words, *libraries(form, plus=False)], check=True)
    return program


def _recorded(
    program: Path, arch: str, *words: str, env: dict[str, str] | None = None
) -> tuple[list[dict[str, object]], dict[str, dict[str, int]], str]:
    """Events, sums by probe, and the report as text."""
    out = program.with_name("out")
    done = ftpatch("probe", program, *words, "-o", out, "--force")
    assert done.code == 0, done.err
    trace = program.with_name("trace")
    trace.unlink(missing_ok=True)
    got = run(out, cwd=program.parent, arch=arch, env={"FTPATCH_TRACE": str(trace), **(env or {})})
    expected = run(program, cwd=program.parent, arch=arch)
    assert (got.out, got.status) == (expected.out, expected.status), str(got)
    rows = ftpatch("report", trace, "--json").json
    sums = {str(row["probe"]): row for row in rows if "hits" in row}
    text = ftpatch("report", trace)
    assert text.code == 0, text.err
    return [row for row in rows if "time" in row], sums, text.out


WAYS = [
    ("x86_64", "pad"),
    ("x86_64", "none"),
    ("i386", "pad"),
    ("i386", "none"),
    ("arm64", "none"),
    ("arm64", "pad"),
    ("ppc64le", "none"),
    ("ppc64le", "pad"),
    ("riscv64", "none"),
    ("riscv64", "pad"),
    ("s390x", "none"),
    ("s390x", "pad"),
    ("loongarch64", "none"),
    ("loongarch64", "pad"),
    ("arm", "none"),
    ("arm", "pad"),
]


@pytest.mark.parametrize(
    ("arch", "site", "trap"),
    [
        (*way, trap)
        for way in WAYS
        for trap in ("--optimize", "--no-optimize")
        if (*way[1:], trap) != ("none", "--no-optimize") or way[0] not in UNTRAPPED
    ],
)
def test_values(arch: str, site: str, trap: str, tmp_path: Path) -> None:
    program = _built(SAFE, tmp_path, Form(arch, "pie", "-O1", site))
    take = NARROW if arch in ("i386", "arm") else TAKE
    rows, sums, text = _recorded(program, arch, take, "r:back take $retval:s32", trap)
    assert {name: row["hits"] for name, row in sums.items()} == {"take": 2, "back": 2}
    one, back, two, _ = rows
    assert one["values"] == {
        "name": "first",
        "text": 'a "text"',
        "number": -5,
        "small": 200,
        "six": "0x2",
        "last": "last",
        "none": None,
        "second": -2,
        "counter": 40,
        "five": "0x5",
        "what": one["values"]["what"],  # type: ignore[index]
        "far": one["values"]["far"],  # type: ignore[index]
    }
    assert two["values"]["last"] is None and two["values"]["counter"] == 35  # type: ignore[index]
    assert back["values"] == {"arg1": -len('first a "text" -5 200 6\n')}
    assert str(back["caller"]).startswith("main+0x")
    assert 'text="a \\"text\\""' in text and "last=(fault)" in text
    chrome = json.loads(ftpatch("report", tmp_path / "trace", "--format", "chrome").out)
    calls = [event for event in chrome["traceEvents"] if event["ph"] == "X"]
    assert [call["name"] for call in calls] == ["back", "back"]
    assert calls[0]["args"] == {**back["values"], "caller": back["caller"]}
    assert round(calls[0]["dur"] * 1000) == back["duration"]  # us, of which 1.001 is no float


@pytest.mark.parametrize("arch", ARCHES_PROBED)
def test_maxactive(arch: str, tmp_path: Path) -> None:
    """A call that finds no free instance goes through; what was left or ended is free again."""
    program = _built(LOOPS, tmp_path, Form(arch, "pie", "-O0", "none"))
    words = ("r4:fib fib", "p:all fib", "r:every fib", "r6:leaves leaves", "r2:ends ends")
    _, sums, _ = _recorded(program, arch, *words)
    calls = sums["all"]["hits"]
    assert sums["every"] == {**sums["every"], "hits": calls, "missed": 0}
    assert sums["fib"]["hits"] + sums["fib"]["missed"] == calls
    # fib(15) goes 15 deep; the 4 outermost levels of it have 1 + 1 + 2 + 4 ... calls, by the tree.
    depths = _depths(15)
    assert sums["fib"]["hits"] == sum(number for depth, number in depths.items() if depth < 4)
    assert sums["leaves"] == {**sums["leaves"], "hits": 0, "missed": 0}
    assert sums["ends"]["hits"] == 25 and sums["ends"]["missed"] == 0


def _depths(n: int, depth: int = 0) -> dict[int, int]:
    """How many calls fib(n) makes at each depth."""
    found = {depth: 1}
    for smaller in (n - 1, n - 2) if n >= 2 else ():
        for at, number in _depths(smaller, depth + 1).items():
            found[at] = found.get(at, 0) + number
    return found


@pytest.mark.parametrize("arch", ARCHES_PROBED)
def test_a_handler_of_ones_own(arch: str, tmp_path: Path) -> None:
    stub = tmp_path / "returns.elf"
    flags = "-O2 -shared -fPIC -nostdlib -ffreestanding -fno-stack-protector"
    own = [*OWN_FLAGS.get(arch, ["-mgeneral-regs-only"])]
    own += ["-fcf-protection=none"] * (arch == "x86_64")
    if arch in CROSS:
        use_cross_root(arch)
    source = Path(__file__).parent.parent.parent / "samples" / "stubs" / "returns.c"
    gcc = ARCHES[arch].gcc
    words = [gcc, *flags.split(), *own, "-Wl,-Bsymbolic", str(source), "-o", str(stub)]
    subprocess.run(words, check=True)
    text = SAFE.replace("return 0;", 'return take(&first, "c", 1, 2, 3, 4, 5) != 0;')
    program = _built(text, tmp_path, Form(arch, "pie", "-O1", "none"))
    out = tmp_path / "out"
    probe = ("probe", program, "r:back take $retval:s32", "-o", out)
    assert ftpatch(*probe, "--handler", f"{stub}:forgiving").code == 0
    trace = tmp_path / "trace"
    plain = run(program, cwd=tmp_path, arch=arch)
    done = run(out, cwd=tmp_path, arch=arch, env={"FTPATCH_TRACE": str(trace)})
    assert (plain.status, done.status, done.out) == (1, 0, plain.out)
    rows = [row for row in ftpatch("report", trace, "--json").json if "time" in row]
    assert [row["values"]["arg1"] for row in rows] == [0, 0, 0]
    gone = ftpatch(*probe, "--force", "--handler", f"{stub}:missing")
    assert (gone.code, gone.err) == (2, f"ftpatch: {stub}: the stub defines no missing\n")


REFUSED = [
    ("p nothing", "no such function 'nothing'; use its address: 0x..."),
    ("r fib+1", "retprobe address must be a function entry: 'fib+1' at column 3 of 'r fib+1'; "),
    ("p fib+2", "is not at an instruction boundary; see `objdump -d`"),
    ("p fib+0x10000", "fib has "),
    ("p 0x4", "0x4 is not in an executable segment"),
    ("p fib @nothing", "@nothing: no such symbol"),
    ("p fib " + " ".join(f"a{n}=+0($arg1):string" for n in range(8)), "its values take 64 words"),
    ("r 0x4", "is not a known function entry; use a p probe"),
]


@pytest.mark.parametrize(("probe", "said"), REFUSED, ids=[probe[:20] for probe, _ in REFUSED])
def test_refused(probe: str, said: str, tmp_path: Path) -> None:
    """One bad probe, and nothing is written."""
    program = _built(SAFE, tmp_path, Form(level="-O0", site="none"))
    out = tmp_path / "out"
    done = ftpatch("probe", program, "p:good take", probe, "-o", out)
    assert done.code == 2 and not out.exists()
    assert said in done.err and done.err.count("\n") == 1, done.err


def test_twice(tmp_path: Path) -> None:
    program = _built(SAFE, tmp_path, Form(site="none"))
    out = tmp_path / "out"
    assert ftpatch("probe", program, "p fib", "-o", out).code == 0
    again, once = tmp_path / "again", tmp_path / "once"
    assert ftpatch("probe", out, "p take", "-o", again).code == 0
    assert ftpatch("probe", program, "p fib", "p take", "-o", once).code == 0
    assert ftpatch("probe", again).out == ftpatch("probe", once).out
    assert ftpatch("undo", again).code == 0
    assert again.read_bytes() == out.read_bytes()
    assert ftpatch("undo", out).code == 0
    assert out.read_bytes() == program.read_bytes()


def test_only_programs_and_libraries(tmp_path: Path) -> None:
    part = tmp_path / "part.o"
    source = tmp_path / "source.c"
    source.write_text("int one(void) { return 1; }\n")
    subprocess.run(["gcc", "-c", str(source), "-o", str(part)], check=True)
    done = ftpatch("probe", part, "p one", "-o", tmp_path / "out")
    assert done.code == 2 and done.err.endswith("cannot be probed; use an executable\n")


def test_damaged_traces(tmp_path: Path) -> None:
    """Cut, and with bytes changed: a line, or the part that is whole; never a traceback."""
    program = _built(SAFE, tmp_path, Form(site="none"))
    _recorded(program, "x86_64", TAKE, "r:back take", env={"FTPATCH_TRACE_SIZE": "64K"})
    whole = (tmp_path / "trace").read_bytes()
    used = 8192 + 1024
    rng = random.Random(3)
    damaged = tmp_path / "damaged"
    cases = [whole[:at] for at in (*range(0, 8192, 331), *range(8192, used, 37))]
    for _ in range(250):
        raw = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.choice((rng.randrange(256), rng.randrange(4096, 4700), rng.randrange(used)))
            raw[at] = rng.choice((0, 0xFF, rng.randrange(256), raw[at] ^ 1 << rng.randrange(8)))
        cases.append(bytes(raw))
    for case in cases:
        damaged.write_bytes(case)
        for format_ in ("probes", "json", "chrome"):
            done = ftpatch("report", damaged, "--format", format_, "--force")
            assert done.code in (0, 2) and "internal error" not in done.err, done.err
