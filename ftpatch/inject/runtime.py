# SPDX-License-Identifier: MIT
"""The tracers that come with ftpatch: their stubs and the configuration of each.

The configuration is `struct stub_config` of stubs/runtime/runtime.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ftpatch.elf.headers import Segment
from ftpatch.elf.properties import has_abi_tag
from ftpatch.elf.symbols import dynamic_symbols
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.image.injected import CONFIG_MAGIC, image_id
from ftpatch.inject.stub import CALLERS, RETURNS, Stub, read_stub
from ftpatch.layout import constants, pack, structure
from ftpatch.layout.built import built
from ftpatch.names.suggest import require_known

__all__ = [
    "LIBRARY",
    "PROBES",
    "RECORDING",
    "TRACERS",
    "USER",
    "WATCH",
    "Tracer",
    "code_span",
    "Keeping",
    "configuration",
    "MAX_ROTATE",
    "library_stub",
    "probed_library_stub",
    "probes_stub",
    "together_stub",
    "tracer_named",
    "tracer_of",
    "user_functions",
    "user_stub",
    "watch_stub",
]

FUNC_BITS = constants["FUNC_BITS"]
"""Range of function addresses that an event can hold (bytes)."""
SANDBOXING = ("prctl", "syscall")
"""Functions through which a program installs a seccomp filter."""
LIBSECCOMP = "seccomp_load"
"""The same through libseccomp."""
LOSES_CLOCK, LOSES_CALLS = constants["GIVES_UP_CLOCK"], constants["GIVES_UP_CALLS"]
LEAST_PROFILE = 1 << 12
"""Minimum size of a profile's table (bytes)."""
PROFILE_ENTRY = structure("trace_profile").itemsize
_, REGS_CALLER = CALLERS
LIBRARY = constants["TRACE_LIBRARY"]
"""Flag of a shared library's own runtime."""


@dataclass(frozen=True)
class Tracer:
    """A tracer that comes with ftpatch. ``number`` identifies it in trace files; ``hooks``: it
    replaces return addresses; ``records``: it writes a trace file."""

    name: str
    number: int
    hooks: bool
    records: bool
    arguments: bool


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """A choice of the events to keep, unless the environment makes another. ``ring``: the latest,
    in place of the oldest, when the trace file is full; ``off``: none until recording is switched
    on; ``rotate``: the number of full files to keep besides the one that is written, 0: there is
    but one file; ``signal``: the number of one that switches recording, 0: none."""

    ring: bool = False
    off: bool = False
    rotate: int = 0
    signal: int = 0

    @property
    def flags(self) -> int:
        """As in a configuration."""
        ring, off = constants["TRACE_RING"] * self.ring, constants["TRACE_OFF"] * self.off
        return ring | off | self.rotate << constants["TRACE_KEEPS"]

    @classmethod
    def of(cls, flags: int, signal: int) -> Keeping:
        """The choice that these flags and a signal are, as in a configuration."""
        ring, off = flags & constants["TRACE_RING"], flags & constants["TRACE_OFF"]
        rotate = flags >> constants["TRACE_KEEPS"]
        return cls(ring=bool(ring), off=bool(off), rotate=rotate, signal=signal)

    def __or__(self, other: Keeping) -> Keeping:
        """The choice that has all of both."""
        return Keeping(
            ring=self.ring or other.ring,
            off=self.off or other.off,
            rotate=max(self.rotate, other.rotate),
            signal=other.signal or self.signal,
        )

    def require_fit(self, tracer: Tracer) -> None:
        """Raise UsageError for a tracer that has no events, and for a ring that rotates."""
        options = {"--ring": self.ring, "--off": self.off, "--rotate": self.rotate}
        options["--signal"] = self.signal
        for option, asked in options.items():
            if not asked or (tracer.records and tracer.number != constants["TRACER_USER"]):
                continue
            whose = "a stub of your own" if tracer == USER else f"the {tracer.name} tracer"
            raise UsageError(None, f"{option}: {whose} records nothing", HINT)
        if tracer.number == constants["TRACER_PROFILE"] and (self.ring or self.rotate):
            option = "--ring" if self.ring else "--rotate"
            raise UsageError(None, f"{option}: {tracer.name} records sums, which take little", HINT)
        if self.ring and self.rotate:
            raise UsageError(None, "--rotate: a ring is one file", "remove it, or --ring")


HINT = "remove it"
MAX_ROTATE = constants["MAX_ROTATE"]
"""Maximum number of full trace files that are kept."""
TRACERS = {
    tracer.name: tracer
    for tracer in (
        Tracer("nop", constants["TRACER_NOP"], False, False, False),
        Tracer("function", constants["TRACER_FUNCTION"], False, True, False),
        Tracer("function_graph", constants["TRACER_GRAPH"], True, True, True),
        Tracer("function_profile", constants["TRACER_PROFILE"], True, True, False),
    )
}

RECORDING = tuple(tracer.name for tracer in TRACERS.values() if tracer.records)
"""Names of the tracers that write a trace file."""
USER = Tracer("user", constants["TRACER_USER"], True, True, False)
PROBES = Tracer("probes", constants["TRACER_PROBES"], True, True, False)
WATCH = Tracer("watch", constants["TRACER_WATCH"], False, True, False)


def tracer_of(name: str, arch: str, *, arguments: bool) -> tuple[Tracer, Stub]:
    """Look up a tracer by name, and its stub for an architecture. Raises UsageError for an unknown
    name, InputError for an architecture without stubs."""
    tracer = tracer_named(name)
    if arguments and not tracer.arguments:
        raise UsageError(None, f"the {name} tracer does not record arguments", "remove --args")
    return tracer, _built(tracer.name, arch, arguments)


def tracer_named(name: str) -> Tracer:
    """Look up a tracer by name; the path of a stub is USER. Raises UsageError for an unknown
    name."""
    if "/" in name or name.endswith(".elf"):
        return USER
    require_known("tracer", name, TRACERS)
    return TRACERS[name]


def probes_stub(arch: str) -> tuple[Tracer, Stub]:
    """Return the stub to insert with probes. Raises InputError for an architecture without them."""
    return PROBES, _built(PROBES.name, arch, arguments=False)


def watch_stub(image: Image, arch: str) -> tuple[Tracer, Stub]:
    """Return the stub to insert with watches. Raises InputError for an architecture without them.

    arm64 traps before the access (Arm ARM, D2.10, "Watchpoint exceptions"): what a write leaves is
    not known then. One that raises a signal is repeated after the handler returns, and raises it
    again, forever: see BP_SIGNAL_IS_SUPPORTED in the kernel's tools/perf/tests/tests.h.
    """
    known = [path.parent.name for path in built().glob(f"*/{WATCH.name}.elf")]
    if arch not in known:
        reason = f"watches are not supported on {arch}"
        why = "elsewhere the processor traps before the access; probe what writes it"
        raise InputError(image.path, reason, f"only on {', '.join(sorted(known))}: {why}")
    return WATCH, _built(WATCH.name, arch, arguments=False)


def together_stub(arch: str, *, watches: bool) -> Stub:
    """Return the stub of a tracer and probes, and with ``watches`` of these too. Raises InputError
    for an architecture without it."""
    return _built("together_watch" if watches else "together", arch, arguments=False)


def library_stub(arch: str, *, arguments: bool) -> Stub:
    """Return the stub to insert into a shared library. Raises InputError for an architecture
    without one."""
    return _built("library", arch, arguments)


def probed_library_stub(arch: str) -> Stub | None:
    """Return the stub to insert into a shared library with probes; None for an architecture without
    one."""
    path = built() / arch / "library_probes.elf"
    return read_stub(path) if path.is_file() else None


def _built(name: str, arch: str, arguments: bool) -> Stub:
    path = built() / arch / f"{name}{'_args' if arguments else ''}.elf"
    if not path.is_file():
        raise InputError(None, f"no {name} tracer for {arch}")
    return read_stub(path)


def code_span(image: Image) -> tuple[int, int]:
    """Return the bounds of an image's code, from the start of a page on (link addresses).
    Raises InputError if it is larger than an event can address."""
    loads = (s for s in image.elf.skeleton.segments if s.type == Segment.PT_LOAD)
    code = [s for s in loads if s.flags & Segment.PF_X]
    base = min((s.address for s in code), default=0) & ~0xFFF
    end = max((s.address + s.memory_size for s in code), default=0)
    if end - base >= 1 << FUNC_BITS:
        raise InputError(image.path, f"its code spans more than {1 << FUNC_BITS} bytes")
    return base, end


def _may_lose(image: Image) -> int:
    """Determine what a program may give up through seccomp: system calls and, in strict mode, the
    clock as well, if it calls prctl() or syscall(). A stripped static program gives no clue; its
    clock is left alone, since guarding it takes a signal handler."""
    needed = dynamic_symbols(image.elf)
    calls = {
        name
        for name in (*SANDBOXING, LIBSECCOMP)
        if image.symbols.find(name) is not None or len(needed.rows_named(name, defined=False))
    }
    if calls.intersection(SANDBOXING):
        return LOSES_CLOCK | LOSES_CALLS
    return LOSES_CALLS if calls or not (len(needed) or len(image.symbols)) else 0


def user_stub(path: Path, arch: str) -> tuple[Stub, Stub]:
    """Read a user's stub; return the stub that calls it as well, which is the first. Raises
    InputError for one that mixes functions with and without registers, or takes registers on an
    architecture without them."""
    user = read_stub(path, own=False, needs=CALLERS)
    caller, returned = _functions(user)
    for name in (*CALLERS, *RETURNS):
        if name not in (caller, returned) and user.address(name) is not None:
            reason = f"the stub defines {caller} and {name}"
            raise InputError(path, reason, f"{caller} goes with {returned} alone")
    if caller == REGS_CALLER and not (built() / arch / "user_regs.elf").is_file():
        reason = f"{REGS_CALLER} is not supported on {arch}"
        raise InputError(path, reason, "define ftrace_caller, which takes two addresses")
    own = _built("user_regs" if caller == REGS_CALLER else USER.name, arch, arguments=False)
    return own, user


def user_functions(stub: Stub, shift: int) -> tuple[int, int]:
    """Addresses of what a user's stub has called at entries and returns (0: none), shifted by
    ``shift``."""
    found = (stub.callable(name) for name in _functions(stub))
    caller, returned = (0 if place is None else place + shift for place in found)
    return caller, returned


def _functions(stub: Stub) -> tuple[str, str]:
    """The names of a user's functions, for entries and returns."""
    one = next(i for i, name in enumerate(CALLERS) if stub.address(name) is not None)
    return CALLERS[one], RETURNS[one]


def configuration(
    image: Image,
    stub: Stub,
    tracer: Tracer,
    *,
    shift: int,
    depth: int,
    size: int,
    entry: int,
    sites: int,
    arguments: bool,
    user: tuple[int, int] = (0, 0),
    libraries: tuple[int, int] = (0, 0),
    probes: int = 0,
    hooks: int = 0,
    attached: bool = False,
    flags: int = 0,
    watches: int = 0,
    keeping: Keeping | None = None,
    ended: int = 0,
) -> dict[int, bytes]:
    """Build a stub's configuration, by address in the stub. ``entry``: the program's own entry
    point; ``sites``: how many there are; ``user``: a user's functions; ``libraries``: link
    addresses of their table and of DT_DEBUG's value; ``probes`` and ``hooks``: link addresses of
    their tables; ``attached``: the program runs already, so that the actions of its signals stay
    its own; ``flags``: further enum trace_flags; ``watches``: their table's link address;
    ``keeping``: what it keeps of its events; ``ended``: a library's own DT_FINI, whose DT_INIT is
    the ``entry``. Link addresses are modulo 2**64: in a process, a stub
    may lie below its program.

    Raises InputError for a program that is too large for this tracer's events, or a stub without a
    configuration.
    """
    place = stub.address("ftpatch_config")
    if place is None:
        raise InputError(stub.path, "the stub has no ftpatch_config")
    base, _ = code_span(image)
    table = LEAST_PROFILE
    while table < 2 * PROFILE_ENTRY * (sites + 1):
        table *= 2
    silent = 0 if has_abi_tag(image.elf) else constants["TRACE_SILENT"]
    loses = _may_lose(image) if tracer.records else 0
    if flags & LIBRARY:  # the programs that load it are not known
        silent, loses = 0, LOSES_CALLS
    held = pack(
        "stub_config",
        stub.order,
        magic=CONFIG_MAGIC,
        self=(place + shift) % (1 << 64),
        entry=entry,
        base=base,
        size=size,
        depth=depth,
        machine=stub.machine,
        tracer=tracer.number,
        flags=flags
        | constants["TRACE_ARGS"] * arguments
        | silent
        | constants["TRACE_ATTACHED"] * attached
        | (keeping.flags if keeping else 0),
        profile=table,
        clock=loses & ~LOSES_CLOCK if attached else loses,
        signal=keeping.signal if keeping else 0,
        image_id=image_id(image),
        caller=user[0],
        returned=user[1],
        libraries=libraries[0],
        debug=libraries[1],
        probes=probes,
        hooks=hooks,
        watches=watches,
        ended=ended,
    )
    return {place: held}
