# SPDX-License-Identifier: MIT
"""The boot tracer of ppc64le: it sends an event by the hypervisor's console.

A site is `mflr r0; bl tracer` at a function's local entry: r0 is where the function returns, the
link register where it goes on. Free are r11, r12, ctr, xer and the first field of cr (psABI, ELFv2,
2.2.1); r3 to r10 have arguments, and are kept below the stack pointer, where 288 bytes are left
alone by interrupts (psABI, 2.2.2.4 "Protected Zone"; the kernel's KERNEL_REDZONE_SIZE).

H_PUT_TERM_CHAR writes up to 16 bytes, which two registers hold, the first one highest. A call of
the hypervisor may lose r0, r3 to r12, ctr and xer, and like any interrupt SRR0 and SRR1, which a
kernel that returns to user space does not load anew (its PACASRR_VALID). So interrupts are off, and
all of these are kept. An event is that of seven_bits.py, with nine bytes of the stack pointer: that
of a kernel has bits 62 and 63 set, and most others not. It takes two calls, so a lock keeps it
together.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.arch.boot import MEMORY, Assembly, Emulator, Slots, TracerCode, Wanted
from ftpatch.arch.seven_bit_tracer import AT_MARK, AT_WORD, SevenBitTracer
from ftpatch.arch.seven_bits import MARKER, SevenBits

__all__ = ["BOOT_PPC64LE"]

HVC = "hvc"
PUT_TERM_CHAR = 0x58  # H_PUT_TERM_CHAR: arch/powerpc/include/asm/hvcall.h
BUSY, PARAMETER = 1, -4  # H_BUSY: no room for these bytes; H_PARAMETER: no such console
CONSOLE = 0
"""Unit address of the machine's own console."""
EVENTS = 0x7100_00F0
"""Unit address of one for events: any that QEMU gives no device."""
EVENT = SevenBits(sp=9)
AT_ONCE = 16
"""Bytes of a call."""
STOP = 0xC000
"""Upper half of the counter word: stopped. Far enough from 0 that no late decrement wraps."""
LOCK = 4
"""Bytes from the counter word to the lock: 0, or 1 while an event is sent."""
PATIENCE = 1 << 5
"""The same in its upper half: attempts to take the lock, or to send. After 2 million its holder
must have been stopped, or nobody reads the console."""
RI = 2
"""MSR[RI]. Of the MSR, `mtmsrd` with L = 1 sets that and EE (Power ISA 3.1, book III, 4.2.2)."""
SRR0, SRR1, TIME = 26, 27, 268
"""Numbers of special purpose registers; the last is the time base."""
KEPT = (10, 9, 8, 7, 6, 5, 4, 3)
"""Registers that are kept below the stack pointer, eight bytes each, from there on."""
MSR, WORD, ONWARD, OLD0, OLD1, TRIES, UNIT, AT = range(72, 136, 8)
"""Distances below the stack pointer of what else is kept (bytes)."""
BUFFER = 160
"""The same of an event, up to 32 bytes."""
HALF = 0x8000
HERE = bytes.fromhex("05009f42")  # bcl 20, 31, .+4: Capstone 5 takes it for bdnzl
STOPPED = ("ld 10, -8(1)", "bctr")


@dataclass(frozen=True, kw_only=True)
class _BootPpc64le(SevenBitTracer):
    name: str = "ppc64le"
    sinks: tuple[str, ...] = (HVC,)
    event: SevenBits = EVENT
    field: int = 26  # R_PPC64_REL32
    tail: str = "__init_begin"
    stack: int = 32768
    locked: tuple[str, ...] = (HVC,)

    @property
    def emulator(self) -> Emulator:
        """The kernel moves itself to address 0, so it is loaded behind the place of its data, where
        nothing is until then. QEMU's own Open Firmware (x-vof) starts it seconds sooner than SLOF.
        TCG warns of what it has no remedies for."""
        events = (
            *("-serial", "file:{console}", "-chardev", "file,id=events,path={stream}"),
            *("-device", f"spapr-vty,chardev=events,reg={EVENTS:#x}"),
        )
        return Emulator(
            program="qemu-system-ppc64",
            package="qemu-system-ppc",
            words=(
                *("-M", "pseries,x-vof=on,kernel-addr=0x8000000"),
                *("-M", "cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off"),
                *("-nodefaults", "-display", "none", "-no-reboot", "-m", "1G"),
            ),
            append="console=hvc0 panic=-1",
            flat=False,
            sinks={HVC: events, MEMORY: events},
            consoles={HVC: "", MEMORY: ""},
        )

    def assemble(self, wanted: Wanted) -> TracerCode:
        """Build the code."""
        out = self.begun(wanted)
        rest = {MEMORY: _to_memory, HVC: _by_hypervisor}[wanted.sink]
        common = 0

        def entry(stopped: int, last: bool) -> None:
            nonlocal common
            _begin(out, wanted, stopped, last=last)
            if last:
                out.add(f"b ${common}")
            else:
                common = out.here
                rest(out, wanted)

        return out.assemble(wanted, self.sinks, STOPPED, entry)


def _begin(out: Assembly, wanted: Wanted, stopped: int, *, last: bool) -> None:
    """Return from a stopped tracer; the ``last`` entry stops it. Load the place into r11, where the
    function returns into r0, and the word's address into r10. ctr leads into the function, and the
    link register is its caller's again. r10 is kept."""
    out.add("std 10, -8(1)", "mflr 11")
    out.words(HERE, "bdnzl")
    here = out.here
    out.add("mflr 12", "mtlr 0", "mtctr 11")
    if wanted.apart:
        if wanted.word is not None:
            _to_field(out, 10, AT_WORD - here)
        _to_field(out, 12, AT_MARK - here)
    else:
        out.add(f"addi 12, 12, {-here}")
        if wanted.word is not None:
            high = (wanted.word + HALF) >> 16
            out.add(f"addis 10, 12, {high}", f"addi 10, 10, {wanted.word - (high << 16)}")
    if wanted.word is not None:
        out.add("lwz 0, 0(10)", "cmpwi 0, 0", f"ble ${stopped}")
        if last:
            out.add(f"lis 0, {STOP - (HALF << 1)}", "stw 0, 0(10)")
        else:
            again = out.here
            out.add("lwarx 0, 0, 10", "addic 0, 0, -1", "stwcx. 0, 0, 10", f"bne- ${again}")
    out.add("subf 11, 12, 11", "mflr 0", "subf 0, 12, 0")


def _disable(out: Assembly) -> None:
    """Disable interrupts; r12 is the MSR before. r7 to r9 are kept."""
    out.add(*_keep("std", KEPT[1:4], 1), "mfmsr 12", f"li 9, {RI}", "and 9, 9, 12", "mtmsrd 9, 1")


def _to_field(out: Assembly, register: int, at: int) -> None:
    """Load the address that a Field tells the distance to, which is so many bytes from r12."""
    out.add(f"addi {register}, 12, {at}", f"lwa 0, 0({register})", f"add {register}, {register}, 0")


def _keep(how: str, registers: tuple[int, ...], first: int) -> list[str]:
    """Store or load some of KEPT, of which ``first`` is the number of the first one."""
    return [f"{how} {one}, -{8 * number}(1)" for number, one in enumerate(registers, first + 1)]


def _leave(out: Assembly) -> None:
    """Return, with interrupts as they were in r12."""
    out.add(*_keep("ld", KEPT[:4], 0), "mtmsrd 12, 1", "bctr")


def _to_memory(out: Assembly, wanted: Wanted) -> None:
    """Fill a slot of the ring: r9 is its number, r7 its address. An interrupt between taking a slot
    and filling it might wait for that slot."""
    slots = Slots(wanted.time)
    _disable(out)
    out.add(f"addi 8, 10, {Slots.HEAD}")
    again = out.here
    out.add("lwarx 9, 0, 8", "addi 7, 9, 1", "stwcx. 7, 0, 8", f"bne- ${again}")
    wait = out.here
    out.add(f"lwz 7, {Slots.TAIL}(10)", "subf 7, 7, 9", f"cmplwi 7, {slots.count}", f"bge ${wait}")
    out.add(f"andi. 7, 9, {slots.count - 1}", f"mulli 7, 7, {slots.size}", "add 7, 10, 7")
    out.add(f"addi 7, 7, -{Slots.RING}", "stw 0, 4(7)", "std 1, 8(7)")
    if wanted.time:
        out.add(f"mfspr 8, {TIME}", "std 8, 16(7)")
    out.add("lwsync", "stw 11, 0(7)")  # the slot is full
    out.add(f"andi. 9, 9, {slots.told - 1}")
    leave = out.ahead("bne")
    _before_calls(out)
    out.add(f"li 3, {PUT_TERM_CHAR}", f"lis 4, {EVENTS >> 16}", f"ori 4, 4, {EVENTS & 0xFFFF}")
    out.add("li 5, 1", "sc 1")
    _behind_calls(out)
    out.land(leave)
    _leave(out)


def _by_hypervisor(out: Assembly, wanted: Wanted) -> None:
    """Write to the console. r8 is where a byte is stored."""
    _disable(out)
    _before_calls(out)
    if wanted.word is not None:
        _lock(out)
    out.add(f"li 9, {MARKER}", f"addi 8, 1, -{BUFFER}", "stb 9, 0(8)")
    _bytes(out, 11, EVENT.place)
    _bytes(out, 0, EVENT.place)
    out.add(f"rldicl 12, 1, {64 - EVENT.grain}, {EVENT.grain}")
    _bytes(out, 12, EVENT.sp)
    if wanted.time:
        out.add(f"mfspr 12, {TIME}")
        _bytes(out, 12, EVENT.time)
    _write(out, EVENT.size(time=wanted.time))
    _behind_calls(out)
    if wanted.word is not None:
        out.add(f"ld 10, -{WORD}(1)", "lwsync", "li 9, 0", f"stw 9, {LOCK}(10)")
    _leave(out)


def _lock(out: Assembly) -> None:
    """Wait for the lock, but not forever."""
    out.add(f"addi 8, 10, {LOCK}", "li 6, 1", f"lis 9, {PATIENCE}")
    again = out.here
    out.add("addi 9, 9, -1", "lwarx 7, 0, 8", "stwcx. 6, 0, 8", f"bne- ${again}", "cmpwi 9, 0")
    enough = out.ahead("ble")
    out.add("cmpwi 7, 0", f"bne ${again}")
    out.land(enough)
    out.add("isync")


def _bytes(out: Assembly, register: int, count: int) -> None:
    """Append ``count`` bytes of seven bits each of a register, which is lost, to what r8 leads to;
    ctr counts them."""
    out.add(f"li 9, {count}", "mtctr 9")
    again = out.here
    out.add(f"ori 9, {register}, 0x80", "stbu 9, 1(8)")
    out.add(f"rldicl {register}, {register}, 57, 7", f"bdnz ${again}")


def _write(out: Assembly, size: int) -> None:
    """Write so many bytes to the console for events or, if there is none, to the machine's own;
    again while the hypervisor has no room, but not forever."""
    end = BUFFER - size
    out.add(f"lis 9, {PATIENCE}", f"stw 9, -{TRIES}(1)", f"addi 8, 1, -{BUFFER}")
    out.add(f"lis 9, {EVENTS >> 16}", f"ori 9, 9, {EVENTS & 0xFFFF}", f"std 9, -{UNIT}(1)")
    part = out.here
    out.add(f"std 8, -{AT}(1)", f"addi 5, 1, -{end}", "subf 5, 8, 5", f"cmpwi 5, {AT_ONCE}")
    rest = out.ahead("ble")
    out.add(f"li 5, {AT_ONCE}")
    out.land(rest)
    out.add("ldbrx 6, 0, 8", "addi 8, 8, 8", "ldbrx 7, 0, 8")
    out.add(f"li 3, {PUT_TERM_CHAR}", f"ld 4, -{UNIT}(1)", "sc 1")
    out.add(f"ld 8, -{AT}(1)", f"cmpwi 3, {PARAMETER}")
    there = out.ahead("bne")
    out.add(f"ld 9, -{UNIT}(1)", f"li 4, {CONSOLE}", f"std 4, -{UNIT}(1)")
    out.add(f"cmpwi 9, {CONSOLE}", f"bne ${part}")
    out.land(there)
    out.add(f"cmpwi 3, {BUSY}")
    done = out.ahead("bne")
    out.add(f"lwz 9, -{TRIES}(1)", "addi 9, 9, -1", f"stw 9, -{TRIES}(1)")
    out.add("cmpwi 9, 0", f"bgt ${part}")
    out.land(done)
    out.add(f"addi 8, 8, {AT_ONCE}", f"addi 9, 1, -{end}", "cmpd 8, 9", f"blt ${part}")


def _before_calls(out: Assembly) -> None:
    """Keep what calls of the hypervisor lose, but for r0 and r11; r8 and r9 are lost."""
    out.add(*_keep("std", KEPT[4:], 4), f"std 12, -{MSR}(1)", f"std 10, -{WORD}(1)")
    out.add("mfctr 9", f"std 9, -{ONWARD}(1)")
    out.add(f"mfspr 8, {SRR0}", f"mfspr 9, {SRR1}", f"std 8, -{OLD0}(1)", f"std 9, -{OLD1}(1)")


def _behind_calls(out: Assembly) -> None:
    """Load it again."""
    out.add(f"ld 8, -{OLD0}(1)", f"ld 9, -{OLD1}(1)", f"mtspr {SRR0}, 8", f"mtspr {SRR1}, 9")
    out.add(f"ld 9, -{ONWARD}(1)", "mtctr 9", f"ld 12, -{MSR}(1)", *_keep("ld", KEPT[4:], 4))


BOOT_PPC64LE = _BootPpc64le()
