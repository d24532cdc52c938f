# SPDX-License-Identifier: MIT
"""The code of an injected call on arm64:

bti jc                      wherever the thread was stopped
(steps)
end: adr x9, frame          of which the kernel reads what stands from `stack` on
mov sp, x9
mov x8, 139; svc 0          rt_sigreturn

frame (rt_sigframe)         siginfo, uc_flags, uc_link: not read, and not there
  stack                     of no valid kind, so that the thread's own stays
  mask | sigcontext: regs, sp, pc, pstate | fpsimd_context | end of the records

No register is left to jump with: the kernel sets all of them at once, with the mask, as it does
behind a signal handler. Nothing is written to the thread's stack.

struct rt_sigframe: arch/arm64/kernel/signal.c; ucontext and sigcontext:
arch/arm64/include/uapi/asm; what is checked: parse_user_sigframe(), restore_altstack(). Encodings:
Arm ARM (DDI 0487) C6.2, of MOVZ, MOVN, MOVK, ADR, ADD (immediate), BLR, STR (immediate), SVC, TBNZ,
BTI.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.injected_call import Done, Function, GoingOn, InjectedCall, Step, SystemCall

__all__ = ["INJECTED_CALL"]

ENTER: Final = 0xD503_24DF  # bti jc
SVC: Final = 0xD400_0001  # svc #0
LEAVE: Final = (
    0x9100_013F,  # mov sp, x9 (add sp, x9, #0)
    0xD280_1168,  # mov x8, 139 (rt_sigreturn)
    SVC,
)
MOVZ, MOVN, MOVK = 0xD280_0000, 0x9280_0000, 0xF280_0000
"""movz, movn, movk x0, #0: the register in bits 0 to 4, 16 bits from bit 5 on, which of the four
times 16 bits from bit 21 on."""
ADR: Final = 0x1000_0009  # adr x9, .
FAILED: Final = 0xB7F8_0000  # tbnz x0, 63, .
CALL: Final = (
    0x9100_013F,  # mov sp, x9 (add sp, x9, #0)
    0xD63F_0200,  # blr x16
)
STORE: Final = 0xF900_0020  # str x0, [x1]
NUMBER, STACK, CALLEE = 8, 9, 16
"""Registers of a system call's number, of a stack, of a function's address."""
ALIGN: Final = 16
"""Bytes of alignment of a stack pointer, and therefore of the frame."""
NOP: Final = 0xD503_201F  # nop
UNREAD: Final = 144
"""Bytes of struct rt_sigframe before uc_stack: siginfo, uc_flags, uc_link."""
TAIL: Final = struct.Struct("<QI4xQQ136x31QQQQ8xIIII512s16x")
"""From uc_stack on: ss_sp, ss_flags, ss_size; uc_sigmask; regs, sp, pc, pstate of uc_mcontext;
fpsimd_context: magic, size, fpsr, fpcr, vregs; the end of the records."""
INVALID: Final = 4
"""ss_flags that do_sigaltstack() refuses, which nobody is told."""
FPSIMD: Final = (0x4650_8001, 528)
"""FPSIMD_MAGIC, sizeof(struct fpsimd_context)."""
VECTORS: Final = struct.Struct("<512sII8x")
"""struct user_fpsimd_state: vregs, fpsr, fpcr."""


def _words(*insn: int) -> bytes:
    return struct.pack(f"<{len(insn)}I", *insn)


def _load(register: int, value: int) -> bytes:
    """movz or movn, then movk for each of the other quarters that is not what the first left."""
    quarters = [value >> shift & 0xFFFF for shift in (0, 16, 32, 48)]
    rest = 0xFFFF if quarters.count(0xFFFF) > quarters.count(0) else 0
    out = [(n, quarter) for n, quarter in enumerate(quarters) if quarter != rest] or [(0, rest)]
    first, *others = out
    opcode, given = (MOVN, first[1] ^ 0xFFFF) if rest else (MOVZ, first[1])
    insn = [opcode | first[0] << 21 | given << 5 | register]
    insn += [MOVK | n << 21 | quarter << 5 | register for n, quarter in others]
    return _words(*insn)


def _make(steps: Sequence[Step]) -> bytes:
    code = bytearray(_words(ENTER))
    failures = []
    for step in steps:
        if isinstance(step, SystemCall):
            code += b"".join(_load(n, value) for n, value in enumerate(step.arguments))
            code += _load(NUMBER, step.number) + _words(SVC)
            failures.append(len(code))
            code += _words(FAILED)
        elif isinstance(step, Function):
            code += b"".join(_load(n, value) for n, value in enumerate(step.arguments))
            code += _load(STACK, step.stack // ALIGN * ALIGN) + _load(CALLEE, step.address)
            code += _words(*CALL)
        else:
            assert isinstance(step, Done)
            code += _load(0, step.value) + _load(1, step.address) + _words(STORE)
    for at in failures:
        insn = FAILED | (len(code) - at) // 4 << 5  # imm14 words
        struct.pack_into("<I", code, at, insn)
    size = len(code) + 4 * (1 + len(LEAVE))
    nops = -size % ALIGN // 4
    distance = size + 4 * nops - UNREAD - len(code)
    adr = ADR | (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5  # immlo, immhi
    return bytes(code) + _words(adr, *LEAVE, *[NOP] * nops)


def _tail(going_on: GoingOn) -> bytes:
    vregs, fpsr, fpcr = VECTORS.unpack(going_on.vectors)
    registers = [int(word) for word in going_on.registers.item()]  # as sigcontext has them
    return TAIL.pack(0, INVALID, 0, going_on.mask, *registers, *FPSIMD, fpsr, fpcr, vregs)


NEEDED: Final = (
    (222, (0, 4096, 5, 0x100022)),  # mmap: r-x, private, anonymous
    (222, (0, 4096, 3, 1)),  # mmap: rw-, shared
    (226, (0, 4096, 3)),  # mprotect: rw-
    (215, (0, 4096)),  # munmap
    (139, ()),  # rt_sigreturn
    (57, (3,)),  # close
    (233, (0, 4096, 23)),  # madvise: MADV_POPULATE_WRITE
    (172, ()),  # getpid
    (198, (1, 0o2000001)),  # socket: AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC
    (203, (3,)),  # connect
    (212, (3,)),  # recvmsg
    (208, (3, 1)),  # setsockopt: SOL_SOCKET
    (209, (3, 1)),  # getsockopt
    (46, (3,)),  # ftruncate
    (17, ()),  # getcwd
    (78, ()),  # readlinkat
    (163, (9,)),  # getrlimit: RLIMIT_AS
    (174, ()),  # getuid
    (173, ()),  # getppid
    (167, (16,)),  # prctl: PR_GET_NAME
    (178, ()),  # gettid
    (113, (1,)),  # clock_gettime: CLOCK_MONOTONIC
    (47, (3,)),  # fallocate
    (291, ()),  # statx
)
"""By their numbers (include/uapi/asm-generic/unistd.h), as stubs/runtime makes them."""
INJECTED_CALL: Final = InjectedCall(
    make=_make,
    tail=_tail,
    tail_size=TAIL.size,
    mmap=222,
    mprotect=226,
    munmap=215,
    reach=(1 << 27) - (1 << 20),
    needed=NEEDED,
)
