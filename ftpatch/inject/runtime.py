# SPDX-License-Identifier: MIT
"""The tracers that come with ftpatch: their stubs and the configuration of each.

The configuration is `struct stub_config` of stubs/runtime/runtime.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.elf.headers import Segment
from ftpatch.elf.properties import has_abi_tag
from ftpatch.elf.symbols import dynamic_symbols
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.image.injected import CONFIG_MAGIC, image_id
from ftpatch.inject.stub import Stub, read_stub
from ftpatch.layout import constants, pack, structure
from ftpatch.layout.built import built
from ftpatch.names.suggest import require_known

__all__ = [
    "PROBES",
    "RECORDING",
    "TRACERS",
    "USER",
    "WATCH",
    "Tracer",
    "code_span",
    "configuration",
    "library_stub",
    "probes_stub",
    "tracer_named",
    "tracer_of",
    "user_functions",
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


@dataclass(frozen=True)
class Tracer:
    """A tracer that comes with ftpatch. ``number`` identifies it in trace files; ``hooks``: it
    replaces return addresses; ``records``: it writes a trace file."""

    name: str
    number: int
    hooks: bool
    records: bool
    arguments: bool


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

    On arm64 an access that raises a signal is repeated after the handler returns, and raises it
    again, forever: see BP_SIGNAL_IS_SUPPORTED in the kernel's tools/perf/tests/tests.h.
    """
    known = [path.parent.name for path in built().glob(f"*/{WATCH.name}.elf")]
    if arch not in known:
        reason = f"watches are not supported on {arch}"
        why = "a processor that traps before the access, such as arm64, would trap forever"
        raise InputError(image.path, reason, f"only on {', '.join(sorted(known))}: {why}")
    return WATCH, _built(WATCH.name, arch, arguments=False)


def library_stub(arch: str, *, arguments: bool) -> Stub:
    """Return the stub to insert into a shared library. Raises InputError for an architecture
    without one."""
    return _built("library", arch, arguments)


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


def user_functions(stub: Stub, shift: int) -> tuple[int, int]:
    """Addresses of a user's ftrace_caller and ftrace_return (0: none), shifted by ``shift``."""
    found = (stub.address(name) for name in ("ftrace_caller", "ftrace_return"))
    caller, returned = (0 if place is None else place + shift for place in found)
    return caller, returned


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
) -> dict[int, bytes]:
    """Build a stub's configuration, by address in the stub. ``entry``: the program's own entry
    point; ``sites``: how many there are; ``user``: a user's functions; ``libraries``: link
    addresses of their table and of DT_DEBUG's value; ``probes`` and ``hooks``: link addresses of
    their tables; ``attached``: the program runs already, so that the actions of its signals stay
    its own. Link addresses are modulo 2**64: in a process, a stub may lie below its program.

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
    loses = _may_lose(image) if tracer is not USER and tracer.records else 0
    held = pack(
        "stub_config",
        magic=CONFIG_MAGIC,
        self=(place + shift) % (1 << 64),
        entry=entry,
        base=base,
        size=size,
        depth=depth,
        machine=stub.machine,
        tracer=tracer.number,
        flags=constants["TRACE_ARGS"] * arguments | silent | constants["TRACE_ATTACHED"] * attached,
        profile=table,
        clock=loses & ~LOSES_CLOCK if attached else loses,
        image_id=image_id(image),
        caller=user[0],
        returned=user[1],
        libraries=libraries[0],
        debug=libraries[1],
        probes=probes,
        hooks=hooks,
    )
    return {place: held}
