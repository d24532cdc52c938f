# SPDX-License-Identifier: MIT
"""Named sites: what ftrace_caller itself calls.

ftrace_call         call ftrace_stub     <->  call FUNC                 ftrace_update_ftrace_func
ftrace_graph_call   jmp ftrace_stub      <->  jmp ftrace_graph_caller   x86: ftrace_mod_jmp
                    nop                  <->  b   ftrace_graph_caller   arm64
"""

from __future__ import annotations

import numpy as np

from ftpatch.core.changes import Changes, Kind
from ftpatch.core.columns import addresses
from ftpatch.core.journal import journalled
from ftpatch.errors import SiteRefused, UsageError
from ftpatch.ftrace.plan import Plan
from ftpatch.ftrace.sites import Sites
from ftpatch.names.suggest import meant, near

__all__ = ["plan_named_site"]


def plan_named_site(sites: Sites, name: str, addr: int | None, *, enable: bool) -> Plan:
    """The named site ``name``, and those that are updated with it, goes to ``addr``, or where it
    rests if not ``enable``. Without ``addr`` ftrace_graph_call goes to ftrace_graph_caller.

    Raises UsageError for a site that the image does not have, SiteRefused where it cannot reach.
    """
    image, arch = sites.image, sites.arch
    if name not in arch.named_sites:
        raise UsageError(
            image.path,
            f"{arch.name} has no named site {name!r}",
            meant(near(name, arch.named_sites), f"use {', '.join(sorted(arch.named_sites))}"),
        )
    if image.is_relocatable or image.symbols.find(name) is None:
        raise UsageError(image.path, f"this image has no {name}")
    if enable and addr is None:
        addr = _graph_caller(sites, name)
    if not enable:
        rest = arch.named_site_rest(name)
        addr = image.symbols.find(rest) if rest else 0
        if addr is None:
            raise UsageError(image.path, f"this image has no {rest}")
    parts = [
        _change(sites, site, at, addr or 0)
        for site in arch.named_sites[name]
        if (at := image.symbols.find(site)) is not None
    ]
    changes = Changes.concat(parts)
    changed = len(changes.effective())
    action = "Updating ftrace call site to call a different ftrace function"
    return Plan(
        changes=changes,
        code=sites.code,
        selected=len(parts),
        changed=changed,
        dropped=0,
        restored=0,
        action=action,
    )


def _graph_caller(sites: Sites, name: str) -> int:
    found = sites.image.symbols.find("ftrace_graph_caller") if "graph" in name else None
    if found is None:
        raise UsageError(sites.image.path, f"--site {name} needs --to SYMBOL")
    return found


def _change(sites: Sites, site: str, at: int, addr: int) -> Changes:
    image, arch = sites.image, sites.arch
    ip, to = addresses(at), addresses(addr)
    if addr and not arch.reachable(ip, to)[0]:
        raise SiteRefused(image.path, f"{site} at {at:#x} cannot reach {addr:#x}")
    new = arch.named_site_code(site, at, addr, sites.abi)
    offset = image.elf.offset_of(ip, executable=True)
    found, _ = image.elf.gather(offset, len(new))
    target = arch.named_site_target(site, found[0].tobytes(), at)
    rest = arch.named_site_rest(site)
    known = target is not None and (target == 0 or len(_functions(sites, target)) > 0)
    if not known:  # then it must be at rest
        target = image.symbols.find(rest) if rest else 0
    old = arch.named_site_code(site, at, target or 0, sites.abi)
    if np.isin(ip, journalled(sites.blocks, Kind.CODE).owner)[0]:
        old = sites.left.elf.gather(offset, len(new))[0].tobytes()
    was, becomes = (np.frombuffer(part, np.uint8).reshape(1, -1) for part in (old, new))
    return Changes.of(Kind.CODE, offset, was, becomes, ip)


def _functions(sites: Sites, addr: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Symbols that begin at an address."""
    return np.flatnonzero(sites.image.symbols.value == addr)
