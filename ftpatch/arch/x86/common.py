# SPDX-License-Identifier: MIT
"""Sites of x86_64 and i386: five bytes at the start of a function.

    Compiled             Disabled               Enabled
    e8 <rel32> __fentry__   0f 1f 44 00 00      e8 <rel32> ftrace_caller      (kernel)
    90 90 90 90 90          0f 1f 44 00 00      e8 <rel32> ftrace_caller      (pad)
    ff 15 <disp32>          66 0f 1f 44 00 00   67 e8 <rel32> ftrace_caller   (call by the GOT)
    ff 93 <disp32>          66 0f 1f 44 00 00   67 e8 <rel32> ftrace_caller   (the same on i386)

rel32 counts from the end of the instruction, and so does the disp32 of ff 15; that of ff 93 counts
from what ebx holds, _GLOBAL_OFFSET_TABLE_. The longer form exists in position-independent programs
only; ``67 e8`` is what link editors relax it to (x86-64 psABI, B.2; i386 psABI, A.2).

Opcodes: Intel SDM volume 2A, CALL and JMP; NOPs: volume 2B, NOP, "Recommended Multi-Byte Sequence";
make_nop, make_call, modify_call: arch/x86/kernel/ftrace.c.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.assemble import template
from ftpatch.arch.common import Common
from ftpatch.arch.contract import U8, U64, Abi, State
from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.x86.nops import MAX_NOP_SIZE, OFFERED, OFFERED6, TAIL, form_lengths

__all__ = ["X86"]

CALL = 0xE8  # call rel32
ADDR32 = 0x67  # address-size prefix, without effect on a call
CALL_GOT = {64: (0xFF, 0x15), 32: (0xFF, 0x93)}  # call *disp32(%rip); call *disp32(%ebx)
SIGN_EXTENDS = {"movsbw", "movsbl", "movsbq"}
ENDBR = (b"\xf3\x0f\x1e\xfa", b"\xf3\x0f\x1e\xfb")  # endbr64; endbr32


def rows(*codes: bytes) -> U8:
    """Codes as a matrix, uint8[n, MAX_NOP_SIZE], zero-padded."""
    return np.array([list(code.ljust(MAX_NOP_SIZE, b"\0")) for code in codes], np.uint8)


class X86(Common):
    """The part of the contract that both word sizes share."""

    name: ClassVar[str]
    elf_class: ClassVar[int]
    wrap: ClassVar[int]
    """Largest address."""
    pads: ClassVar[tuple[bytes, ...]]
    """Pads as compilers emit them, most likely first."""
    align: ClassVar[int] = 1
    calls: ClassVar[tuple[int, ...]]
    # The other section, if there is one, lists padding before functions.
    module_tables: ClassVar[tuple[str, ...]] = ("__mcount_loc",)
    call_field: ClassVar[int] = 1
    call_addend: ClassVar[int] = -4
    width: ClassVar[int] = MAX_NOP_SIZE
    landing_size: ClassVar[int] = 4
    pad_size: ClassVar[int] = 5
    pad_nops: ClassVar[int] = 5
    apart: ClassVar[int] = 6
    insn_size: ClassVar[int] = 5
    says_expected: ClassVar[bool] = True
    signed_char: ClassVar[bool] = True
    mcount_is_pad: ClassVar[bool] = False
    nop_texts: ClassVar[frozenset[str]] = frozenset({"nop", "nopl", "nopw", "xchgw %ax, %ax"})
    mcount_names: ClassVar[tuple[str, ...]] = ("__fentry__", "mcount", "_mcount")
    nops: ClassVar[dict[str, bytes]] = OFFERED

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Count the bytes of NOPs at the start of each row: 0x90, or 5 for a pad of one
        instruction, inside which no function can begin."""
        run = np.minimum.accumulate(code == 0x90, axis=1).sum(axis=1)
        run[(run == 0) & self._any(code, self.pads[1:])] = 5
        return np.asarray(run, np.int64)

    def landing(self, code: U8) -> NDArray[np.bool_]:
        """endbr64 or endbr32."""
        return self._any(code, ENDBR)

    def call_adjust(self, entry: U64, code: U8, abi: Abi) -> U64:
        """The address itself; a pad follows an endbr at the entry."""
        return entry + self.landing(code).astype(np.uint64) * np.uint64(self.landing_size)

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """Five- and six-byte calls, and every NOP left by compilers or ftpatch."""
        own = (abi.nop,) if abi.nop else ()
        direct = code[:, 0] == CALL
        relaxed = (code[:, 0] == ADDR32) & (code[:, 1] == CALL)
        first, second = CALL_GOT[self.elf_class]
        # A GOT call is recognised only if the image says which slot it goes through.
        known = self.elf_class == 64 or abi.got_base > 0
        got = (code[:, 0] == first) & (code[:, 1] == second) & known
        call = direct | relaxed | got
        nop = np.zeros(len(code), np.int64)
        if not call.all():
            forms = (*self.pads, *self.nops.values(), *own, *abi.chosen, *OFFERED6.values())
            nop[~call] = form_lengths(code[~call], forms)
        width = np.where(relaxed | got, 6, np.maximum(nop, 5)).astype(np.uint8)
        rel = np.where(direct[:, None], code[:, 1:5], code[:, 2:6]).copy().view("<i4")[:, 0]
        base = np.where(got, self._got_base(ip, abi), ip + width)
        addr = (base + rel.astype(np.int64).view(np.uint64)) & np.uint64(self.wrap)
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        state[nop > 0] = State.NOP
        state[call] = State.CALL
        return state, np.where(call, addr, np.uint64(0)), width, got

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """The selected NOP, else the image's own, else P6, followed by a NOP for the rest; its
        longer sibling for six bytes."""
        five = nop or abi.nop or self.nops["p6"]
        code = np.empty((len(width), MAX_NOP_SIZE), np.uint8)
        for size in np.unique(width).tolist():
            form = OFFERED6.get(five, five + TAIL[1]) if size == 6 else five + TAIL[size - 5]
            code[width == size] = rows(form)
        return code

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """``call addr``: with an address-size prefix to fill six bytes, followed by a NOP to fill
        more."""
        opcode = template(self.name, "call 0x101000", ("call",))[0]  # e8
        size = np.where(width == 6, 6, 5)
        rel = (addr - ip - size.astype(np.uint64)).astype("<u4")
        rel32 = rel.view(np.uint8).reshape(-1, 4)
        code = np.zeros((len(ip), MAX_NOP_SIZE), np.uint8)
        code[:, 0], code[:, 1:5] = opcode, rel32
        wide = width == 6
        code[wide, 0], code[wide, 1], code[wide, 2:6] = ADDR32, opcode, rel32[wide]
        for longer in np.unique(width[width > 6]).tolist():
            code[width == longer, 5:] = rows(TAIL[longer - 5])[:, : MAX_NOP_SIZE - 5]
        return code

    def unlinked(self, code: U8, abi: Abi) -> U8:
        """``e8 00 00 00 00``; on i386, whose relocations have no addend, ``e8 fc ff ff ff``."""
        addend = 0 if self.elf_class == 64 else self.call_addend
        field = np.frombuffer(addend.to_bytes(4, "little", signed=True), np.uint8)
        call = code[:, 0] == CALL
        out = code.copy()
        out[call, 1:5] = field
        return out

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """A call to the compiled-in callee, or one of the compilers' pads."""
        if abi.pad:
            forms = rows(*self.pads)
            sizes = np.array([len(pad) for pad in self.pads])
            beyond = np.arange(MAX_NOP_SIZE) >= sizes[:, None]
            code = np.pad(code, ((0, 0), (0, MAX_NOP_SIZE - code.shape[1])))
            same = ((code[:, None, :] == forms[None]) | beyond[None]).all(axis=2)
            return np.asarray(forms[np.where(same.any(axis=1), same.argmax(axis=1), 0)])
        mcount = np.full(len(ip), abi.mcount, np.uint64)
        call = self.make_call(ip, mcount, width, abi)
        if abi.mcount_got:
            disp = (np.uint64(abi.mcount_got) - self._got_base(ip, abi)).astype("<u4")
            got = np.zeros((len(ip), MAX_NOP_SIZE), np.uint8)
            got[:, :2] = CALL_GOT[self.elf_class]
            got[:, 2:6] = disp.view(np.uint8).reshape(-1, 4)
            call = np.where((width == 6)[:, None], got, call)
        return call

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """ftrace_make_nop(mod, rec, MCOUNT_ADDR) compares the whole call."""
        mcount = np.full(len(ip), abi.mcount, np.uint64)
        return 0, self.make_call(ip, mcount, np.full(len(ip), 5, np.uint8), abi)[:, :5]

    def extends_bytes(self, code: bytes, at: int) -> bool:
        """movsx, of a byte: GNU's movsbl."""
        return any(insn.mnemonic in SIGN_EXTENDS for insn in disassemble(self.name, code, at))

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """The image's own NOP."""
        return np.tile(rows(abi.nop or self.nops["p6"])[:, :5], (len(ip), 1))

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """rel32: 2 GB either way from the end of the instruction; all of it on 32 bits."""
        if self.elf_class == 32:
            return np.ones(len(ip), bool)
        distance = (addr - ip - np.uint64(6)).view(np.int64)
        return (distance >= -(1 << 31)) & (distance < (1 << 31) - 1)

    def veneer_target(self, code: bytes, at: int) -> int:
        """A PLT entry, with or without endbr and bnd: ``jmp *slot``."""
        if code[:4] in ENDBR:
            code, at = code[4:], at + 4
        if code[:1] == b"\xf2":  # bnd
            code, at = code[1:], at + 1
        if code[:2] != b"\xff\x25":  # jmp *disp32(%rip); on i386 jmp *disp32
            return 0
        disp = int.from_bytes(code[2:6], "little", signed=True)
        return -((at + 6 + disp if self.elf_class == 64 else disp) & self.wrap)

    def named_site_code(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """``jmp addr`` at ftrace_graph_call (ftrace_mod_jmp), ``call addr`` elsewhere."""
        text, name = ("jmp 0x101000", "jmp") if "graph" in name else ("call 0x101000", "call")
        opcode = template(self.name, text, (name,))[:1]  # e9; e8
        return opcode + ((addr - ip - 5) & 0xFFFF_FFFF).to_bytes(4, "little")

    def named_site_target(self, name: str, code: bytes, ip: int) -> int | None:
        """Target of the jmp or call."""
        if code[:1] != (b"\xe9" if "graph" in name else b"\xe8"):
            return None
        return (ip + 5 + int.from_bytes(code[1:5], "little", signed=True)) & self.wrap

    def named_site_rest(self, name: str) -> str:
        """All call ftrace_stub when disabled."""
        return "ftrace_stub"

    def _got_base(self, ip: U64, abi: Abi) -> U64:
        """Base of the displacement of a call through the GOT at each ip, uint64[n]."""
        return ip + np.uint64(6) if self.elf_class == 64 else np.full_like(ip, abi.got_base)

    @staticmethod
    def _any(code: U8, forms: tuple[bytes, ...]) -> NDArray[np.bool_]:
        """Test which rows begin with one of the forms."""
        return np.asarray(form_lengths(code, forms) > 0)
