# SPDX-License-Identifier: MIT
"""Probes on i386: what gdb finds in registers and on the stack, probes record; and what only this
architecture has: arguments on the stack, values of two words, thunks for the program counter, code
that is relocated."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.tracer_programs import ARCHES, Form, build, libraries, run

GCC = ARCHES["i386"].gcc
pytestmark = pytest.mark.skipif(shutil.which(GCC) is None, reason=f"needs {GCC}")

SOURCE = r"""
#include <stdio.h>
#define CALLED __attribute__((noinline, noipa))
int stock = 100;
CALLED int sell(int n, const char *who) { stock -= n; return who[0] ? stock : -n; }
CALLED long long wide(int a, long long b, double c) { return b * 1000003 + a + (int)c; }
CALLED double half(double of, float by) { return of / by; }
CALLED __attribute__((fastcall)) int fast(int a, int b) { return a * 100 + b; }
CALLED __attribute__((regparm(3))) int three(int a, int b, int c) { return a - b * c; }
CALLED __attribute__((stdcall)) int pops(int a, int b) { return a + 2 * b; }
struct pair { int a, b, c; };
CALLED struct pair made(int a) { struct pair p = {a, 2 * a, stock}; return p; }
int main(void)
{
	for (int i = 1; i < 6; i++) {
		struct pair p = made(i);

		printf("%d %lld %g ", sell(i, i & 1 ? "x" : ""), wide(i, -i, i + .5), half(i, 4));
		printf("%d %d %d ", fast(i, -i), three(i, 2, 3), pops(7, i));
		printf("%d\n", p.a + p.b + p.c);
	}
	return 0;
}
"""
WORDS = {
    "sell": ("$stack1", "%eax"),
    "wide": ("$stack1 $stack2 $stack3 $stack4 $stack5", "%eax %edx"),
    "fast": ("%ecx %edx", "%eax"),
    "three": ("%eax %edx %ecx", "%eax"),
    "pops": ("$stack1 $stack2", "%eax"),
    "made": ("$stack2", ""),
}
"""What each function is given, and what it returns, but for addresses: those change."""
LEVELS = ("pie--O0", "pie--O2", "no-pie--O2", "static--O1", "static-pie--O2")


def _built(text: str, folder: Path, form: str, *more: str) -> Path:
    """The program of a source; ``form``: LINK--OLEVEL."""
    link, level = form.split("--")
    source = folder / "probed.c"
    source.write_text(text)
    return build(Form("i386", link, f"-{level}", "none", more=more), str(source), folder)


def _recorded(program: Path, *words: str) -> tuple[list[dict[str, object]], dict[str, int]]:
    """The events, and how often each probe was hit; the program does what it did."""
    out, trace = program.with_name("out"), program.with_name("trace")
    trace.unlink(missing_ok=True)
    done = ftpatch("probe", program, *words, "-o", out, "--force")
    assert done.code == 0, done.err
    env = {"FTPATCH_TRACE": str(trace)}
    got = run(out, cwd=program.parent, arch="i386", env=env)
    expected = run(program, cwd=program.parent, arch="i386")
    assert (got.out, got.status) == (expected.out, expected.status), str(got)
    undone = program.with_name("undone")
    assert ftpatch("undo", out, "-o", undone, "--force").code == 0
    assert undone.read_bytes() == program.read_bytes()
    rows = ftpatch("report", trace, "--json").json
    hits = {str(row["probe"]): int(row["hits"]) for row in rows if "hits" in row}
    return [row for row in rows if "time" in row], hits


GDB = """
import gdb, json
rows = []
class At(gdb.Breakpoint):
    def __init__(self, place, name, texts):
        super().__init__("*" + place, internal=True)
        self.name, self.texts = name, texts
    def stop(self):
        read = lambda text: int(gdb.parse_and_eval(text)) & 0xffffffff
        rows.append([self.name, *map(read, self.texts)])
        return False
gdb.execute("set confirm off"); gdb.execute("set startup-with-shell off")
gdb.execute("starti > /dev/null")
for name, place, texts in PLACES:
    At(place, name, texts)
gdb.execute("continue"); print("\\nROWS " + json.dumps(rows))
"""


def _by_gdb(program: Path) -> list[list[object]]:
    """What gdb sees at the entries and returns of functions: name and values."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    told = subprocess.run(["objdump", "-d", program], capture_output=True, text=True, check=True)
    places = []
    for name, (given, back) in WORDS.items():
        (body,) = re.findall(rf"<{name}>:\n((?:.+\n)+)", told.stdout)
        rets = re.findall(r"^\s*([0-9a-f]+):.*\tret", body, re.MULTILINE)
        start = re.findall(r"^\s*([0-9a-f]+):", body, re.MULTILINE)[0]
        texts = [
            f"*(unsigned *)($esp + {4 * int(one[6:])})" if one[0] == "$" else f"${one[1:]}"
            for one in given.split()
        ]
        places.append((name, f"(char *)&{name}", texts))
        results = [f"${one[1:]}" for one in back.split()]
        for at in rets:
            by = int(at, 16) - int(start, 16)
            places.append((f"r{name}", f"((char *)&{name} + {by})", results))
    script = program.with_name("script.py")
    script.write_text(GDB.replace("PLACES", repr(places)))
    command = ["gdb", "-nx", "-batch", "-x", str(script), str(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=program.parent
    )
    found = re.search(r"^ROWS (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout[-1000:] + done.stderr[-1000:]
    rows: list[list[object]] = json.loads(found[1])
    return rows


@pytest.mark.parametrize("way", ["--optimize", "--no-optimize"])
@pytest.mark.parametrize("form", LEVELS)
def test_values_are_those_of_gdb(form: str, way: str, tmp_path: Path) -> None:
    program = _built(SOURCE, tmp_path, form)
    seen = _by_gdb(program)
    probes = []
    for name, (given, back) in WORDS.items():
        probes += [f"p:{name} {name} " + " ".join(f"{one}:u32" for one in given.split())]
        probes += [f"r:r{name} {name} " + " ".join(f"{one}:u32" for one in back.split())]
    rows, _ = _recorded(program, *probes, way)
    got = [[row["probe"], *dict(row["values"]).values()] for row in rows]  # type: ignore[call-overload]
    assert len(got) == 2 * 5 * len(WORDS)
    assert got == seen


def test_arguments_and_results(tmp_path: Path) -> None:
    program = _built(SOURCE, tmp_path, "pie--O2")
    rows, hits = _recorded(
        program,
        "p:sell sell n=$arg1:s32 who=$arg2:string left=@stock:s32",
        "r:sold sell ret=$retval:s32",
        "p:wide wide a=$arg1:s32 b=$arg2:s64 c=$arg4:f64 bb=+8(%esp):s64",
        "r:wided wide ret=$retval:s64 low=$retval",
        "p:half half of=$arg1:f64 by=$arg3:f32",
        "p:fast fast a=%ecx:s32 b=%dx:s32",
        "p:three three a=%ax:s32 b=%edx:s32 c=%cx:s32",
        "p:pops pops a=$arg1:s32 b=$arg2:s32",
        "r:popped pops ret=$retval:s32",
        "r:made made c=+8($retval):s32",
    )
    values: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        values.setdefault(str(row["probe"]), []).append(dict(row["values"]))  # type: ignore[call-overload]
    assert set(hits.values()) == {5}
    left, numbers = 100, range(1, 6)
    for i, sell, sold in zip(numbers, values["sell"], values["sold"], strict=True):
        assert sell == {"n": i, "who": "x" if i & 1 else "", "left": left}
        left -= i
        assert sold == {"ret": left if i & 1 else -i}
    assert [one["b"] for one in values["wide"]] == [-i for i in numbers]
    assert [one["bb"] for one in values["wide"]] == [-i for i in numbers]
    assert [one["c"] for one in values["wide"]] == [i + 0.5 for i in numbers]
    results = [-i * 1000003 + i + i for i in numbers]
    assert [one["ret"] for one in values["wided"]] == results
    lows = [int(str(one["low"]), 16) for one in values["wided"]]
    assert lows == [one % (1 << 32) for one in results]
    assert values["half"] == [{"of": float(i), "by": 4.0} for i in numbers]
    assert values["fast"] == [{"a": i, "b": -i} for i in numbers]
    assert values["three"] == [{"a": i, "b": 2, "c": 3} for i in numbers]
    assert values["pops"] == [{"a": 7, "b": i} for i in numbers]
    assert values["popped"] == [{"ret": 7 + 2 * i} for i in numbers]
    assert [one["c"] for one in values["made"]] == [100, 99, 97, 94, 90]


def test_filters_and_histograms(tmp_path: Path) -> None:
    program = _built(SOURCE, tmp_path, "no-pie--O2")
    rows, hits = _recorded(
        program,
        "r:low wide ret=$retval:s64 if ret < -3000000",
        "p:some sell n=$arg1:s32 if n > 2 && every(2)",
        "p:named sell if +0($arg2):string == 'x'".replace("'", '"'),
        "p:sums sell n=$arg1:s32 who=$arg2:string hist:keys=who:vals=n",
    )
    assert [dict(row["values"])["ret"] for row in rows if row["probe"] == "low"] == [  # type: ignore[call-overload]
        -i * 1000003 + 2 * i for i in (3, 4, 5)
    ]
    assert (hits["low"], hits["some"], hits["named"]) == (3, 1, 3)
    text = ftpatch("report", tmp_path / "trace").out
    assert re.search(r'"x".*hitcount: +3.*: +9', text.replace("\n", " ")), text


REFUSED = [
    ("p sell %eax:s64", "%eax has 4 bytes; take s32 or u32"),
    ("p sell $stack:u64", "$stack has 4 bytes; take s32 or u32"),
    ("p sell %rax", "invalid register name: '%rax' at column 8 of 'p sell %rax'; "),
    ("p sell %xmm8:f64", "invalid register name: '%xmm8' at column 8 of "),
]


@pytest.mark.parametrize(("probe", "said"), REFUSED, ids=[one for one, _ in REFUSED])
def test_what_is_refused(probe: str, said: str, tmp_path: Path) -> None:
    program, out = _built(SOURCE, tmp_path, "pie--O2", "-g"), tmp_path / "out"
    done = ftpatch("probe", program, probe, "-o", out)
    assert done.code == 2 and not out.exists()
    assert said in done.err and done.err.count("\n") == 1, done.err


def test_thunks_for_the_program_counter(tmp_path: Path) -> None:
    """They give the address behind their call, also where that was moved; nobody may replace the
    return address that they read."""
    program = _built(SOURCE, tmp_path, "pie--O1")
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    thunks = re.findall(r"(__x86\.get_pc_thunk\.\w+)$", symbols, re.MULTILINE)
    assert thunks
    calls = [f"p:c{n} {name}" for n, name in enumerate(thunks)]
    moved = [f"p:m{n} {name}" for n, name in enumerate((*WORDS, "main"))]
    for way in ("--optimize", "--no-optimize"):
        _, hits = _recorded(program, *calls, *moved, way)
        assert sum(hits[f"c{n}"] for n in range(len(thunks))) > 9
    done = ftpatch("probe", program, f"r:back {thunks[0]}", "-o", tmp_path / "no")
    assert done.code == 2
    assert "returns its own return address; use a p probe" in done.err
    text = """
	.globl main, f
	.type main, @function
	.type f, @function
f:	.cfi_startproc
	push %ebx
	call 1f
1:	pop %ebx
	lea held - 1b(%ebx), %eax
	mov (%eax), %eax
	pop %ebx
	ret
	.cfi_endproc
	.size f, . - f
main:	.cfi_startproc
	call f
	sub $42, %eax
	ret
	.cfi_endproc
	.size main, . - main
	.data
held:	.long 42
	.section .note.GNU-stack, "", @progbits
"""
    source, program = tmp_path / "idiom.S", tmp_path / "idiom"
    source.write_text(text)
    more = libraries(Form("i386"), plus=False)
    subprocess.run([GCC, "-pie", str(source), "-o", str(program), *more], check=True)
    assert "f  jump" in ftpatch("probe", program, "p:f f", "--plan").out
    _, hits = _recorded(program, "p:f f", "r:g f if $retval == 42", "p:main main")
    assert hits == {"f": 1, "g": 1, "main": 1}


@pytest.mark.parametrize("way", ["--optimize", "--no-optimize"])
@pytest.mark.parametrize("form", ["pie--O2", "static--O1"])
def test_every_instruction(form: str, way: str, tmp_path: Path) -> None:
    """Flags and registers between instructions are what they were."""
    program = _built(SOURCE, tmp_path, form)
    told = subprocess.run(["objdump", "-d", program], capture_output=True, text=True, check=True)
    sizes = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout
    probes = []
    for name in (*WORDS, "half", "main"):
        (body,) = re.findall(rf"<{name}>:\n((?:.+\n)+)", told.stdout)
        places = [int(at, 16) for at in re.findall(r"^\s*([0-9a-f]+):.*\t\S", body, re.MULTILINE)]
        (size,) = re.findall(rf"^\w+ (\w+) \w {name}$", sizes, re.MULTILINE)
        places = [at for at in places[::2] if at < places[0] + int(size, 16)]
        probes += [f"p:e{at:x} {name}+{at - places[0]} %flags %esp" for at in places]
    _, hits = _recorded(program, *probes, "--keep-going", way)
    assert len(hits) > 40 and sum(hits.values()) > 5 * 40


def test_code_that_is_relocated(tmp_path: Path) -> None:
    """What the dynamic linker changes (DT_TEXTREL) is neither moved nor overwritten."""
    text = """
	.globl main, f, g
	.type main, @function
	.type f, @function
	.type g, @function
f:	.cfi_startproc
	mov held, %eax
	ret
	.cfi_endproc
	.size f, . - f
g:	.cfi_startproc
	xor %edx, %edx
	xor %ecx, %ecx
	nop
	call f
	ret
	.cfi_endproc
	.size g, . - g
main:	.cfi_startproc
	call g
	sub $42, %eax
	ret
	.cfi_endproc
	.size main, . - main
	.data
held:	.long 42
	.section .note.GNU-stack, "", @progbits
"""
    source, program = tmp_path / "relocated.S", tmp_path / "relocated"
    source.write_text(text)
    more = ["-Wl,-z,notext", *libraries(Form("i386"), plus=False)]
    subprocess.run([GCC, "-pie", str(source), "-o", str(program), *more], check=True)
    for way in ("--optimize", "--no-optimize"):
        done = ftpatch("probe", program, "p:f f", way, "-o", tmp_path / "no")
        assert done.code == 2 and not (tmp_path / "no").exists()
        assert "the dynamic linker changes the code there (DT_TEXTREL)" in done.err
        _, hits = _recorded(program, "p:g g", "p:main main", way)
        assert hits == {"g": 1, "main": 1}


def test_a_library(tmp_path: Path) -> None:
    """Its copy hands on to the program's runtime, and the program's own library does nothing."""
    one, program = tmp_path / "libone.so", tmp_path / "uses"
    (tmp_path / "one.c").write_text(
        "static int kept;\n__attribute__((noinline)) int add(int n) { return kept += n; }\n"
        "int twice(int n) { int m = add(n); return m + add(n); }\n"
    )
    (tmp_path / "uses.c").write_text(
        "#include <stdio.h>\nint twice(int);\n"
        'int main(void) { for (int i = 0; i < 4; i++) printf("%d\\n", twice(i)); return 0; }\n'
    )
    form = Form("i386", "pie", "-O1", "none")
    subprocess.run(
        [GCC, "-O1", "-shared", "-fPIC", str(tmp_path / "one.c"), "-o", str(one)], check=True
    )
    words = [*form.command(tmp_path / "uses.c"), str(tmp_path / "uses.c")]
    found = [f"-L{tmp_path}", "-lone", *libraries(form, plus=False), f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*words, "-o", str(program), *found], check=True)
    rows, hits = _recorded(
        program, "p:add libone.so:add n=$arg1:s32", "r:sum libone.so:add $retval:s32", "p main"
    )
    assert (hits["add"], hits["sum"]) == (8, 8)
    sums = [dict(row["values"])["arg1"] for row in rows if row["probe"] == "sum"]  # type: ignore[call-overload]
    assert sums == [0, 0, 1, 2, 4, 6, 9, 12]
    assert {str(row["caller"]).split("+")[0] for row in rows if "caller" in row} <= {
        "twice",
        one.name,
    }
