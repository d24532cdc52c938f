# SPDX-License-Identifier: MIT
"""Modules that ftpatch made of Debian's, and the commands by which a guest loads and uses them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .cli import ftpatch
from .guest import Step, run_steps
from .modfile import ModuleFile
from .tracer import CALLEE, loader_program, tracer_module
from .trees import Tree

__all__ = [
    "COUNT",
    "COUNT_AGAIN",
    "HELPERS",
    "PADS",
    "PINGS",
    "USES",
    "Loaded",
    "Variant",
    "load_all",
]

PADS = ("arm64", "riscv64", "loongarch64")
"""Compiled with NOPs: a call is what ftrace_init would not expect."""
PINGS = 3
# IPv6 would send packets of its own, at times of its own.
COUNT, COUNT_AGAIN = "count", "count again"
APPEND = "ipv6.disable=1"
USES = ("dummy_xmit", "dummy_get_stats64")
"""What use_dummy surely runs."""
HELPERS = f"""
use_dummy() {{
    ip addr add 10.9.9.1/24 dev dummy0; ip link set dummy0 up
    for i in $(seq {PINGS}); do ping -c 1 -W 1 10.9.9.2 >/dev/null & done
    sent=/sys/class/net/dummy0/statistics/tx_packets
    for i in $(seq 600); do [ $(cat $sent) -ge {PINGS} ] && break; sleep 0.1; done
    echo "sent $(cat $sent)"
}}
use_veth() {{
    ip link add one type veth; ip link set one up; ip link set veth0 up
    ip addr add 10.8.8.1/24 dev one; ping -c 1 -W 1 10.8.8.2 >/dev/null &
    sent=/sys/class/net/veth0/statistics/rx_packets
    for i in $(seq 600); do [ $(cat $sent) -ge 1 ] && break; sleep 0.1; done
    [ $(cat $sent) -ge 1 ]; echo "used $?"
    ip link del one
}}
use_brd() {{
    dd if=/init of=/dev/ram0 bs=512 count=1 2>/dev/null; sync
    [ "$(head -c 512 /init)" = "$(head -c 512 /dev/ram0)" ]; echo "used $?"
}}
calls() {{ cat /sys/module/ifb/parameters/calls; }}
load() {{ # MODULE FILE HOW...
    module=$1; file=$2; shift 2
    "$@" /m/$file; echo "insmod $?"
    [ -d /sys/module/$module ] || return
    echo "taint $(cat /proc/sys/kernel/tainted)"
    grep -F "[$module]" /t/available_filter_functions | sed 's/^/listed /; s/ [^ ]*$//'
    [ -d /sys/module/ifb ] && before=$(calls)
    echo ":mod:$module" > /t/set_ftrace_filter && echo function > /t/current_tracer
    use_$module
    [ -d /sys/module/ifb ] && echo "calls $(($(calls) - before))"
    echo 0 > /t/tracing_on
    sed -n 's/.*: \\([^ ]*\\) .*<-.*/traced \\1/p' /t/trace
    echo nop > /t/current_tracer; echo 1 > /t/tracing_on
    echo > /t/set_ftrace_filter
    rmmod $module; echo "rmmod $?"
}}
"""


@dataclass(frozen=True)
class Variant:
    """One module as ftpatch wrote it, or as it came."""

    module: str
    commands: tuple[tuple[str, ...], ...] = ()  # verb and words, each on what the last one wrote
    select: str = ""  # functions whose code differs from the compiler's in the end; "*": all
    compressed: bool = False  # loaded as the file is
    fails: bool = False  # it must not load

    def changes(self, function: str) -> bool:
        """Whether its site ends in another state than the compiler's."""
        if self.select.startswith("!"):
            return function != self.select[1:]
        return self.select in ("*", function)


def _variants(tree: Tree) -> dict[str, Variant]:
    to, entry = ("--to", CALLEE), ("--to", "ftrace_caller")
    one, rest = ("-f", "dummy_xmit"), ("-f", "!dummy_xmit")
    made = {
        "original": Variant("dummy"),
        "undone": Variant("dummy", (("enable", *one, *to), ("undo",))),
        "undone twice": Variant("dummy", (("enable", *to), ("disable", *one), ("undo", "--all"))),
        "veth": Variant("veth"),
        "brd": Variant("brd"),
        "unknown symbol": Variant("dummy", (("enable", *one, *entry),), "dummy_xmit", fails=True),
        "tracer": Variant("ifb"),
        "one calls": Variant("dummy", (("enable", *one, *to),), "dummy_xmit"),
        "all call": Variant("dummy", (("enable", *to),), "*"),
        "veth calls": Variant("veth", (("enable", *to),), "*"),
        "brd calls": Variant("brd", (("enable", *to),), "*"),
    }
    back = (("enable", *one, *to), ("disable", *one))
    made["called and disabled"] = Variant("dummy", back, "" if tree.arch in PADS else "dummy_xmit")
    if tree.arch not in PADS:
        made |= {
            "one disabled": Variant("dummy", (("disable", *one),), "dummy_xmit"),
            "others disabled": Variant("dummy", (("disable", *rest),), "!dummy_xmit"),
            "all disabled": Variant("dummy", (("disable",),), "*"),
            "veth disabled": Variant("veth", (("disable",),), "*"),
            "brd disabled": Variant("brd", (("disable",),), "*"),
        }
    if tree.modules["dummy"].suffix == ".xz":  # and the kernel can unpack it
        made["compressed"] = Variant("dummy", (("enable", *one, *to),), "dummy_xmit", True)
        made["compressed original"] = Variant("dummy", compressed=True)
    return made


def make(tree: Tree, variant: Variant, scratch: Path, name: str) -> Path:
    """What ftpatch made of a module; each command works on what the one before wrote."""
    source = tree.modules[variant.module]
    if not variant.compressed and source.suffix == ".xz":
        source = scratch / f"{tree.name}-{variant.module}.ko"
        source.write_bytes(tree.module(variant.module))
    made = scratch / f"{tree.name}-{name.replace(' ', '-')}{source.suffix}"
    made.write_bytes(source.read_bytes())
    for verb, *words in variant.commands:
        more = [] if verb == "undo" else ["--in-place", "--strip-signature"]
        ftpatch(verb, made, *more, *words)
    return made


@dataclass(frozen=True)
class Loaded:
    """A boot with every variant, one after the other."""

    tree: Tree
    modules: dict[str, ModuleFile]  # as they came
    variants: dict[str, Variant]
    files: dict[str, Path]
    steps: dict[str, Step]

    def listed(self, name: str) -> set[str]:
        """What available_filter_functions must have of a variant: all that the compiler left in
        the text that stays, but for those whose site is in another state."""
        file = self.modules[self.variants[name].module]
        return {f for f in file.lasting() if not self.variants[name].changes(f)}


def load_all(tree: Tree, scratch: Path) -> Loaded:
    """Signed modules first: the first one that is not signed leaves its mark on the kernel."""
    variants = _variants(tree)
    order = sorted(variants, key=lambda name: not _is_signed(variants[name]))
    order = [COUNT, *order, COUNT_AGAIN]
    files: dict[str, Path] = {}
    held: dict[str, bytes] = {"m/load": loader_program(tree, scratch)}
    steps: dict[str, str] = {}
    for number, name in enumerate(order):
        if name not in variants:
            steps[name] = 'rmmod ifb; echo "functions $(grep -c . /t/available_filter_functions)"'
            continue
        variant = variants[name]
        if variant.module == "ifb":
            held["m/tracer.ko"] = tracer_module(tree, scratch)
            steps[name] = 'insmod /m/tracer.ko numifbs=0; echo "insmod $?"'
            continue
        path = files[name] = make(tree, variant, scratch, name)
        held[f"m/{number}{path.suffix}"] = path.read_bytes()
        how = "/m/load" if variant.compressed else "insmod"
        steps[name] = f"load {variant.module} {number}{path.suffix} {how}"
    modules = {name: ModuleFile(tree.module(name)) for name in tree.modules}
    seen = run_steps(tree, scratch, held, steps, HELPERS, APPEND)
    return Loaded(tree, modules, variants, files, seen)


def _is_signed(variant: Variant) -> bool:
    untouched = not variant.commands or variant.commands[-1][0] == "undo"
    return untouched and variant.module != "ifb"
