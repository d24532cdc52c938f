# SPDX-License-Identifier: MIT
"""Base of the architectures: a folder's ftrace.py has what differs.

Landing pads, veneers, literals and stubs of CALL_OPS are things of a few. A record is the address
of its site, and null is skipped.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64, Abi, Deadly

__all__ = ["Common"]


class Common:
    """Base of an architecture's ``Arch``."""

    chain: ClassVar[bytes] = b""
    records_nested: ClassVar[bool] = False
    shadow_stack: ClassVar[tuple[int, int]] = (0, 0)
    module_nop: ClassVar[bytes] = b""
    call_field: ClassVar[int] = 0
    call_addend: ClassVar[int] = 0
    wide: ClassVar[tuple[int, ...]] = ()
    around: ClassVar[int] = 64
    word_size: ClassVar[int] = 0
    says_expected: ClassVar[bool] = False
    veneer_size: ClassVar[int] = 0
    plt_sections: ClassVar[tuple[str, ...]] = (".plt", ".plt.sec", ".plt.got", ".iplt")
    trampoline: ClassVar[int] = 0
    nops: ClassVar[dict[str, bytes]] = {}
    skips: ClassVar[tuple[int, ...]] = (0,)
    signed_char: ClassVar[bool] = False
    chosen_nops: ClassVar[tuple[bytes, ...]] = ()
    poked_nop: ClassVar[bytes] = b""
    own_nops: ClassVar[frozenset[bytes]] = frozenset()
    nop_texts: ClassVar[frozenset[str]] = frozenset({"nop"})
    mcount_names: ClassVar[tuple[str, ...]] = ("_mcount", "mcount")
    named_sites: ClassVar[dict[str, tuple[str, ...]]] = {
        # ftrace_update_ftrace_func updates both.
        "ftrace_call": ("ftrace_call", "ftrace_regs_call"),
        "ftrace_regs_call": ("ftrace_regs_call",),
        "ftrace_graph_call": ("ftrace_graph_call",),
    }

    def other_abi(self, flags: int) -> str:
        """There is one calling convention."""
        return ""

    def lead(self, abi: Abi) -> int:
        """A site begins at its ip."""
        return 0

    def landing(self, code: U8) -> NDArray[np.bool_]:
        """There are no landing pads."""
        return np.zeros(len(code), bool)

    def call_adjust(self, entry: U64, code: U8, abi: Abi) -> U64:
        """The address itself."""
        return entry

    def extends_bytes(self, code: bytes, at: int) -> bool:
        """Never: char is unsigned."""
        return False

    def deadly(
        self, record: U64, ip: U64, there: NDArray[np.bool_], abi: Abi
    ) -> tuple[Deadly, ...]:
        """None: ftrace_init_nop reads without faults (copy_from_kernel_nofault), and compares
        before it writes."""
        return ()

    def branch_at(self, ip: U64, width: U8, abi: Abi) -> U64:
        """The site itself: what the branch is behind is in the limits."""
        return ip

    def veneer(self, at: int, addr: int) -> bytes:
        """There are none: targets out of reach are refused."""
        return b""

    def ops_stub(self, at: int, caller: bytes, addr: int, ops: int) -> bytes:
        """There is none."""
        return b""

    def is_ops_stub(self, code: bytes) -> bool:
        """Never."""
        return False

    def skipped(self, abi: Abi) -> tuple[int, ...]:
        """Null."""
        return (0,)

    def drop(self, abi: Abi) -> int | None:
        """Null: where call_adjust is the identity, it is skipped whichever is first."""
        return 0

    def literal(self, ip: U64) -> U64:
        """There is none: the address itself."""
        return ip

    def named_site_code(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """There are no named sites."""
        return b""

    def named_site_target(self, name: str, code: bytes, ip: int) -> int | None:
        """There are no named sites."""
        return None

    def named_site_rest(self, name: str) -> str:
        """There are no named sites."""
        return ""
