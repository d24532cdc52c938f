# SPDX-License-Identifier: MIT
"""Places of x86's text that the kernel changes, other than alternatives.

    table               compiled in                      may become
    .smp_locks          f0        lock                   3e        ds, with one processor
    .return_sites       e9 rel32  jmp __x86_return_thunk c3 cc cc cc cc, or a jmp of another thunk
    .retpoline_sites    e8 rel32  call thunk of a reg    ff d0+r   call *%reg
                        e9 rel32  jmp thunk              ff e0+r   jmp *%reg
                        0f 8x     jcc thunk              7x, jmp *%reg
    .ibt_endbr_seal     f3 0f 1e fa  endbr64             66 0f 1f 00  nopw (%rax)
    .parainstructions   ff 14 25 / ff 15  call *pv_ops   e8 rel32  call, or NOPs
    static calls        e8 / e9 rel32                    the same of the key's function, a NOP, ret
    runtime_*           a constant                       its value

apply_retpolines, apply_returns, apply_seal_endbr, alternatives_smp_module_add, apply_paravirt:
arch/x86/kernel/alternative.c; arch/x86/kernel/static_call.c; asm/runtime-const.h.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64
from ftpatch.arch.text_patching import PatchedText
from ftpatch.arch.x86.nops import P6

__all__ = [
    "endbrs", "locks", "moved_words", "paravirt", "relative", "retpolines", "returns",
    "runtime_constants", "static_calls",
]  # fmt: skip

CALL, JMP, INT3, RET = 0xE8, 0xE9, 0xCC, 0xC3
CS = 0x2E
LFENCE = bytes.fromhex("0faee8")
LOCK, DS = 0xF0, 0x3E
RET_INT3 = bytes([RET, INT3, INT3, INT3, INT3])
XOR5 = bytes.fromhex("2e2e2e31c0")  # cs cs xor %eax, %eax: __static_call_return0
XOR5_OLDER = bytes.fromhex("66664831c0")  # data16 data16 xor %rax, %rax: the same, up to v6.0
ENDBR_POISONS = (bytes.fromhex("660f1f00"), bytes.fromhex("0f1f40d6"))
"""nopw (%rax); nopl -42(%rax), since v6.15."""
REGISTERS = 16
RETURN0 = "__static_call_return0"


def relative(opcode: int, at: U64, target: U64, tail: bytes = b"") -> U8:
    """``opcode rel32`` at each place, uint8[n, 5], and a tail."""
    rel = (target - at - np.uint64(5)).astype("<u4")
    head = np.full((len(at), 1), opcode, np.uint8)
    end = np.tile(np.frombuffer(tail, np.uint8), (len(at), 1))
    return np.concatenate([head, rel[:, None].view(np.uint8), end], axis=1)


def locks(text: PatchedText) -> None:
    """Settle prefixes: one kernel in five runs on one processor only, a virtual machine."""
    at = text.offsets(".smp_locks")
    compiled = text.compiled(at, 1)
    at = at[compiled[:, 0] == LOCK]
    text.settle(at, _widths(at, 1), np.full((len(at), 1), DS, np.uint8))


def returns(text: PatchedText) -> None:
    """Settle returns: as one instruction, or by the thunk that this kernel has chosen."""
    at = text.offsets(".return_sites")
    forms = [_repeated(RET_INT3, len(at))]
    pointer = text.find("x86_return_thunk")
    thunk = text.word(pointer) if pointer else 0
    if thunk:
        forms.append(relative(JMP, at, np.full(len(at), thunk, np.uint64)))
    text.settle(at, _widths(at, 5), *forms)


def retpolines(text: PatchedText) -> None:
    """Settle indirect branches: of the register whose thunk was called, or of its ITS thunk."""
    at = text.offsets(".retpoline_sites")
    code = text.compiled(at, 6)
    prefixed = code[:, 0] == CS  # pads a branch to six bytes
    conditional = (code[:, 0] == 0x0F) & (code[:, 1] & 0xF0 == 0x80)
    long = prefixed | conditional
    size = np.where(long, 6, 5).astype(np.int64)
    rel = np.where(long[:, None], code[:, 2:6], code[:, 1:5]).copy().view("<i4")[:, 0]
    register = _register(text, at + (size + rel).view(np.uint64))
    its = text.find("__x86_indirect_its_thunk_array")
    step = text.find("__x86_indirect_its_thunk_rcx") - its
    heads = np.column_stack([code[:, :2], register, size, long])
    heads[~long, 1] = 0
    for head in np.unique(heads[register >= 0], axis=0).tolist():
        first, second, number, width, _ = head
        rows = (heads == head).all(axis=1)
        place = at[rows]
        opcode = second if first == CS else first
        forms = _branches(opcode, second, number, width)
        text.settle(place, size[rows], *(_repeated(form, len(place)) for form in forms))
        if its and opcode in (CALL, JMP):  # its place in the site stays
            place = place + np.uint64(width - 5)
            thunk = np.full(len(place), its + number * step, np.uint64)
            text.settle(place, _widths(place, 5), relative(opcode, place, thunk))


def _branches(opcode: int, condition: int, register: int, size: int) -> list[bytes]:
    """Forms of an indirect call or jump of ``size`` bytes: with NOPs behind it, or int3."""
    modrm = (0xD0 if opcode == CALL else 0xE0) + register % 8
    bare = b"\x41" * (register >= 8) + bytes([0xFF, modrm])
    forms = []
    for body in (bare, LFENCE + bare):
        if opcode == 0x0F:  # jcc thunk: over a jmp *%reg by the opposite condition
            body = bytes([0x70 | (condition & 0xF ^ 1), size - 2]) + body
        room = size - len(body)
        if 0 <= room < len(NOPS):
            forms += [body + NOPS[room], body + b"\x90" * room, body + b"\xcc" * room]
        if room > 1:
            forms.append(body + b"\xcc" + NOPS[room - 1])
    return forms


def _register(text: PatchedText, target: U64) -> NDArray[np.int64]:
    """Number of the register whose thunk an address is, int64[n]; -1 for none."""
    array = text.find("__x86_indirect_thunk_array")
    step = text.find("__x86_indirect_thunk_rcx") - array
    if not array or step <= 0:
        return np.full(len(target), -1, np.int64)
    distance = (target - np.uint64(array)).view(np.int64)
    number = distance // step
    good = (distance % step == 0) & (number >= 0) & (number < REGISTERS)
    return np.where(good, number, -1)


def endbrs(text: PatchedText) -> None:
    """Settle landing pads that no indirect branch needs."""
    at = text.offsets(".ibt_endbr_seal")
    text.settle(at, _widths(at, 4), *(_repeated(code, len(at)) for code in ENDBR_POISONS))


def paravirt(text: PatchedText) -> None:
    """Settle calls through pv_ops: what the operation is, NOPs where it does nothing."""
    rows = text.table(".parainstructions", "", "paravirt_patch_site", ("instr", "type", "len"))
    ops, nothing = text.find("pv_ops"), text.find("_paravirt_nop")
    if not len(rows) or not ops:
        return
    at = rows.column("instr", "<u8").view(np.uint64)
    kind, size = rows.column("type", "u1"), rows.column("len", "u1")
    function = np.array([text.word(ops + 8 * each) for each in range(256)], np.uint64)[kind]
    form = np.concatenate([relative(CALL, at, function), nops_after(size - 5)], axis=1)
    does_nothing = function == np.uint64(nothing)
    form[does_nothing] = nops_after(size[does_nothing], 13)
    text.settle(at, size, form)


def nops_after(size: NDArray[np.int64], width: int = 8) -> U8:
    """x86_nops of each size, uint8[n, width]."""
    out = np.zeros((len(size), width), np.uint8)
    for each in np.unique(size).tolist():
        if 0 < each < len(NOPS):
            out[np.ix_(size == each, range(each))] = np.frombuffer(NOPS[each], np.uint8)
    return out


NOPS = (
    b"", b"\x90", b"\x66\x90", b"\x0f\x1f\x00", b"\x0f\x1f\x40\x00", P6,
    b"\x66\x0f\x1f\x44\x00\x00", b"\x0f\x1f\x80\x00\x00\x00\x00",
    b"\x0f\x1f\x84\x00\x00\x00\x00\x00",
)  # fmt: skip
"""x86_nops of asm/nops.h, by size."""


def static_calls(text: PatchedText) -> None:
    """Settle static calls and their trampolines: of the function that their key has now."""
    rows = text.table(
        "__start_static_call_sites", "__stop_static_call_sites", "static_call_site", ("addr", "key")
    )
    at, key = rows.address("addr"), rows.address("key") & np.uint64((1 << 64) - 4)
    _settle_static(text, at, _functions(text, key))
    names = [name for name in text.names("__SCT__") if text.find("__SCK__" + name)]
    tramp = np.array([text.find("__SCT__" + name) for name in names], np.uint64)
    keys = np.array([text.find("__SCK__" + name) for name in names], np.uint64)
    _settle_static(text, tramp, _functions(text, keys))


def _functions(text: PatchedText, key: U64) -> U64:
    """What each key calls now, uint64[n]; 0: nothing."""
    unique, which = np.unique(key, return_inverse=True)
    return np.array([text.word(at) for at in unique.tolist()], np.uint64)[which]


def _settle_static(text: PatchedText, at: U64, function: U64) -> None:
    code = text.compiled(at, 6)
    none, zero = function == 0, function == np.uint64(text.find(RETURN0))
    thunk = text.word(text.find("x86_return_thunk")) if text.find("x86_return_thunk") else 0
    call, tail = code[:, 0] == CALL, code[:, 0] == JMP
    size = _widths(at, 5)
    for rows, *forms in (
        (call & ~none, relative(CALL, at, function)),
        (call & none, _repeated(P6, len(at))),
        (call & zero, _repeated(XOR5, len(at)), _repeated(XOR5_OLDER, len(at))),
        (tail & ~none, relative(JMP, at, function)),
        (tail & none, _repeated(RET_INT3, len(at)), relative(JMP, at, _same(at, thunk))),
    ):
        text.settle(at[rows], size[rows], *(form[rows] for form in forms))
    # 0f 8x rel32: a conditional tail call
    jcc = (code[:, 0] == 0x0F) & (code[:, 1] & 0xF0 == 0x80)
    to = np.where(none, np.uint64(thunk), function)
    form = np.concatenate([code[:, :1], relative(0, at + np.uint64(1), to)], axis=1)
    form[:, 1] = code[:, 1]
    text.settle(at[jcc], size[jcc] + 1, form[jcc])


def runtime_constants(text: PatchedText) -> None:
    """Settle constants that are variables before the boot: a shift, a pointer."""
    for section in text.sections("runtime_shift_"):
        at = text.offsets(section)
        value = text.number(text.find(section.removeprefix("runtime_shift_")), 1)
        text.settle(at, _widths(at, 1), np.full((len(at), 1), value, np.uint8))
    for section in text.sections("runtime_ptr_"):
        at = text.offsets(section)
        name = section.removeprefix("runtime_ptr_")
        value = text.number(text.find(name), 8) if text.find(name) else 0
        if not value:  # a macro's, USER_PTR_MAX: all of its places have the same
            held = text.now(at, 8)
            unique, count = np.unique(held, axis=0, return_counts=True)
            value = int.from_bytes(unique[np.argmax(count)].tobytes(), "little") if len(at) else 0
        form = np.tile(np.array([value], "<u8").view(np.uint8), (len(at), 1))
        text.settle(at, _widths(at, 8), form)


def moved_words(text: PatchedText) -> None:
    """Settle words that were moved with the kernel: addresses, of which the lower 32 bits change,
    and distances from the text to per-processor data, which were moved back. Those of addresses in
    the text stand in the boot loader's lists alone, so any word that differs by just that much is
    taken for one."""
    bias = np.uint32(text.bias & 0xFFFF_FFFF)
    if not bias:
        return
    for _ in range(4):  # which of its bytes differ depends on the carry
        at = text.differing()
        for back in range(4):
            place = at - np.uint64(back)
            old, new = (
                text_bytes(place, 4).view("<u4")[:, 0] for text_bytes in (text.compiled, text.now)
            )
            chosen = place[(new == old + bias) | (new == old - bias)]
            text.settle(chosen, _widths(chosen, 4), text.now(chosen, 4))
        if len(text.differing()) == len(at):
            return


def _same(at: U64, value: int) -> U64:
    return np.full(len(at), value, np.uint64)


def _widths(at: U64, size: int) -> NDArray[np.int64]:
    return np.full(len(at), size, np.int64)


def _repeated(code: bytes, number: int) -> U8:
    return np.tile(np.frombuffer(code, np.uint8), (number, 1))
