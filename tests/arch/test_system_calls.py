# SPDX-License-Identifier: MIT
"""What leads system calls elsewhere, against Capstone, and against what ftpatch says of them."""

from __future__ import annotations

import ctypes
import importlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch.disassemble import Instruction, disassemble, engine
from ftpatch.arch.system_calls import system_calls as of_arch
from ftpatch.arch.x86_64 import system_calls as x86_64
from ftpatch.arch.x86_64.system_calls import system_calls
from ftpatch.elf.elf_file import Elf, map_file
from tests.support.command import ROOT

STUBS = Path(__file__).parent.parent.parent / "stubs"
FILES = [
    ("x86_64", "/lib/x86_64-linux-gnu/libc.so.6"),
    ("x86_64", "/usr/lib/x86_64-linux-musl/libc.so"),
    ("x86_64", "/usr/lib/x86_64-linux-gnu/libasan.so.8"),
    ("x86_64", "/bin/busybox"),
    ("i386", "/usr/i686-linux-gnu/lib/libc.so.6"),
]
LENGTH = {"x86_64": "length(AT, &unused)", "i386": "length(AT)"}
END = {"x86_64": "lead.call + 2", "i386": "lead.call + call_size(lead.call, end)"}
SHIM = """
#include "FOLDER/system_calls.c"
void ftrace_asked(void) {}
REGISTERS void ftrace_linked(void) {}
int is_asked(ulong number) { return NUMBERS; }
u32 lengths(const u8 *code, const u32 *at, u32 count, u32 *wrong)
{
	u32 i, bad = 0, n, unused;

	for (i = 0; i < count && bad < 16; i++) {
		n = LENGTH;
		if (n && n != at[i + 1] - at[i])
			wrong[bad++] = at[i];
	}
	return bad;
}
u32 found(const u8 *start, const u8 *end, u32 *out)
{
	struct lead lead;
	const u8 *at = start;
	u32 n;

	for (n = 0; n < 500 && lead_found(start, end, &at, &lead); n++) {
		out[2 * n] = (u32)(lead.from - start);
		out[2 * n + 1] = (u32)(END - start);
	}
	return n;
}
"""


Shims = Mapping[str, ctypes.CDLL]


@pytest.fixture(scope="module")
def shims(tmp_path_factory: pytest.TempPathFactory) -> Shims:
    """stubs/ARCH/system_calls.c as a library of this machine's own."""
    return {arch: _shim(arch, tmp_path_factory.mktemp(arch)) for arch in LENGTH}


def _shim(arch: str, folder: Path) -> ctypes.CDLL:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    known = importlib.import_module(f"ftpatch.arch.{arch}.system_calls").NUMBERS
    numbers = " || ".join(f"number == {number}" for number in sorted(known))
    text = SHIM.replace("NUMBERS", numbers).replace("FOLDER", str(STUBS / arch))
    text = text.replace("LENGTH", LENGTH[arch].replace("AT", "code + at[i]"))
    (folder / "shim.c").write_text(text.replace("END", END[arch]))
    flags = ["-O1", "-w", "-shared", "-fPIC", "-mgeneral-regs-only", "-ffreestanding"]
    include = [f"-I{STUBS / 'runtime'}", f"-I{STUBS / arch}"]
    command = ["gcc", *flags, *include, str(folder / "shim.c"), "-o", str(folder / "shim.so")]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(folder / "shim.so"))
    library.found.argtypes = [ctypes.c_void_p] * 3
    return library


def _code(path: str) -> tuple[bytes, int]:
    if not Path(path).exists():
        pytest.skip(f"no {path}")
    data, mapped = map_file(Path(path))
    elf = Elf.read(Path(path), data, mapped=mapped)
    section = elf.section(".text")
    assert section is not None
    return data[section.offset : section.offset + section.size].tobytes(), section.address


@pytest.mark.parametrize(("arch", "path"), FILES)
def test_lengths_of_instructions(shims: Shims, arch: str, path: str) -> None:
    code, _ = _code(path)
    code = code[: 1 << 19]
    places = [at for at, *_ in engine(arch).disasm_lite(code[:-16], 0)]
    held = (ctypes.c_uint * len(places))(*places)
    wrong = (ctypes.c_uint * 16)()
    bad = shims[arch].lengths(code, held, len(places) - 1, wrong)
    assert len(places) > 1000
    assert not [hex(at) for at in wrong[:bad]]


@pytest.mark.parametrize(("arch", "path"), FILES)
def test_both_find_the_same(shims: Shims, arch: str, path: str) -> None:
    code, address = _code(path)
    room = ctypes.create_string_buffer(len(code) + 8192)
    # As far from a page's start as in memory: functions are aligned there.
    base = (ctypes.addressof(room) + 4095 & ~4095) + address % 4096
    ctypes.memmove(base, code, len(code))
    out = (ctypes.c_uint * 1000)()
    count = shims[arch].found(base, base + len(code), ctypes.addressof(out))
    pairs = np.array(out[: 2 * count], np.int64).reshape(-1, 2) + address
    calls = list(of_arch(arch, code, address))
    assert [(one.start, one.end) for one in calls if one.led] == [tuple(row) for row in pairs]
    assert [one for one in calls if not one.led] == []
    assert count > 5


@pytest.mark.parametrize("arch", ["arm64", "i386", "loongarch64", "x86_64"])
def test_the_runtime_knows_the_same_calls(arch: str) -> None:
    """is_asked() in signals.c has the numbers that are looked for, and rt_sigpending, which changes
    nothing."""
    text = (ROOT / "stubs/runtime/signals.c").read_text()
    asked = text.split("int is_asked(", 1)[1].split("}", 1)[0]
    names = [name for name in re.findall(r"SYS_\w+", asked) if name != "SYS_sigprocmask"]
    words = ["gcc", "-E", "-P", "-Istubs/runtime", "-include", "sys/types.h"]
    done = subprocess.run(
        [*words, "-imacros", f"stubs/{arch}/arch.h", "-"],
        cwd=ROOT,
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=True,
    )
    numbers = dict(zip(names, done.stdout.split()[-len(names) :], strict=True))
    numbers.pop("SYS_rt_sigpending")
    known = importlib.import_module(f"ftpatch.arch.{arch}.system_calls")
    own = getattr(known, "OWN", frozenset[int]())
    assert {int(number) for number in numbers.values()} == known.NUMBERS - own


def test_little_is_disassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large libraries have hundreds of these two bytes after moves that are of no number."""
    moves = bytes.fromhex("4889df 488b4708 4c89e6 448b6310 4889c2 897c2408")  # GNU as, AT&T:
    # mov %rbx,%rdi; mov 8(%rdi),%rax; mov %r12,%rsi; mov 16(%rbx),%r12d; mov %rax,%rdx;
    # mov %edi,8(%rsp)
    code, begun = 100 * (6 * moves + b"\x0f\x05"), 0

    def counted(arch: str, part: bytes, address: int) -> list[Instruction]:
        nonlocal begun
        begun += 1
        return disassemble(arch, part, address)

    monkeypatch.setattr(x86_64, "disassemble", counted)
    assert not list(system_calls(code, 0x1000))
    assert begun < 100
