# SPDX-License-Identifier: MIT
"""The record of a kernel's probes held against the kernel.

Everything that reads a stream believes the record: a site that calls something else sends nothing,
and its probe would seem to have no hits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ftpatch.arch.kernel_text import kernel_mover_of
from ftpatch.boot.hooks import read_hooks
from ftpatch.boot.stream import find_source
from ftpatch.core.columns import addresses
from ftpatch.errors import FtpatchError
from ftpatch.ftrace.check.check import PROBE_CALLED
from ftpatch.ftrace.check.findings import Finding
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import Image
from ftpatch.inject.probe_methods import JUMP

__all__ = ["probe_findings"]


def probe_findings(image: Image) -> list[Finding]:
    """Findings about a kernel's probes, none if it has none; a record that cannot be read is one.
    Raises NoTable for a kernel without sites."""
    try:
        if read_hooks(image) is None:
            return []
        return list(_uncalled(image))
    except FtpatchError as error:
        return [Finding(invariant=PROBE_CALLED, ip=None, symbol="", message=error.reason)]


def _uncalled(image: Image) -> Iterator[Finding]:
    """Probes whose sites do not lead to them."""
    source, sites = find_source(image), read_sites(image)
    assert source.hooked is not None
    for probe in source.hooked.probes:
        at, to = probe["site"], source.at + probe["pad"]
        if probe["way"] == JUMP.name:
            jump = kernel_mover_of(sites.arch.name).jump(at, to)
            held, _ = image.elf.gather(image.elf.offset_of(addresses(at)), len(jump))
            good, what = held.tobytes() == jump, "no jump leads to"
        else:
            (row,) = np.nonzero(sites.ip == np.uint64(at))
            good = bool(len(row)) and int(sites.addr[row[0]]) == to
            what = "the site does not call" if len(row) else "no site calls"
        if good:
            continue
        (place,) = image.kallsyms.places(addresses(at))
        yield Finding(
            invariant=PROBE_CALLED,
            ip=at,
            symbol=place,
            message=f"{what} the code of the probe {probe['name']}",
        )
