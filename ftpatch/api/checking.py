# SPDX-License-Identifier: MIT
"""One image checked: its sites, and the probes of a kernel.

```python
check_image(Path("vmlinux")).findings  # (): ftrace_init would find nothing wrong
```
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ftpatch.ftrace.check.findings import Check
    from ftpatch.image import Image

__all__ = ["check_image", "check_probed"]


def check_image(path: Path, *, functions: bool = False, one_of_many: bool = False) -> Check:
    """Check a file as ``check_probed`` does. Raises InputError for what cannot be read."""
    from ftpatch.image import open_image

    return check_probed(open_image(path), functions=functions, one_of_many=one_of_many)


def check_probed(image: Image, *, functions: bool = False, one_of_many: bool = False) -> Check:
    """Check an image as ``check_open`` does, and that a kernel's probes are as recorded. Raises
    InputError for what cannot be read."""
    from ftpatch.ftrace.check.check import check_open

    found = check_open(image, functions=functions, one_of_many=one_of_many)
    if found.ftrace_init is None or not image.is_kernel or not image.blocks:
        return found
    from ftpatch.boot.check_hooks import probe_findings

    return replace(found, findings=(*found.findings, *probe_findings(image)))
