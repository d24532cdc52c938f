# SPDX-License-Identifier: MIT
"""CALL_OPS without literals, where .rela.dyn has too few entries for them.

ftrace_caller takes its ops pointer from the literal before the function it was called from. A stub
in padding of the text has the pointer without a relocation, and goes on behind that:

    site:  mov x9, lr; bl stub        stub:  adrp x11, ftrace_nop_ops; add x11, x11, :lo12:...
                                             b ftrace_caller + 12

    ftrace_caller:  bti c; bic x11, x30, #7; ldr x11, [x11, #-16];   <- skipped
                    ...
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes
from ftpatch.core.columns import addresses
from ftpatch.ftrace.records import literals_fit
from ftpatch.ftrace.sites import Sites
from ftpatch.ftrace.veneers import lay_code

__all__ = ["lay_ops_stub", "load_ops"]


def lay_ops_stub(
    sites: Sites, mask: NDArray[np.bool_], addr: int, *, keep_records: bool
) -> tuple[NDArray[np.uint64], Changes] | None:
    """Branch targets of the sites in ``mask``, uint64[n], and the Changes that write the stub; None
    if there is room for literals, or if ``addr`` does not begin like ftrace_caller.

    Raises SiteRefused if there is no room for it.
    """
    arch, abi = sites.arch, sites.abi
    dropping = np.zeros(len(sites), bool) if keep_records else mask
    if not abi.nop_ops or literals_fit(sites, mask, dropping):
        return None
    offset = sites.image.elf.offset_of(addresses(addr), executable=True)
    caller = sites.image.elf.gather(offset, arch.around)[0][0].tobytes()
    if not arch.ops_stub(addr, caller, addr, abi.nop_ops):
        return None
    need = f"{int(mask.sum())} literals need more relocations than .rela.dyn has free entries"
    return lay_code(
        sites, mask, addr, lambda at: arch.ops_stub(at, caller, addr, abi.nop_ops), need
    )


def load_ops(sites: Sites, addr: NDArray[np.uint64], laid: Changes) -> NDArray[np.bool_]:
    """Test which callees, uint64[n], are such stubs or are among those just ``laid``, bool[n]."""
    distinct, inverse = np.unique(addr, return_inverse=True)
    offset = sites.image.elf.offset_of(distinct, executable=True)
    code, _ = sites.image.elf.gather(offset, sites.arch.veneer_size)
    there = np.array([sites.arch.is_ops_stub(row.tobytes()) for row in code], bool)
    return np.asarray((there | np.isin(offset, laid.offset))[inverse])
