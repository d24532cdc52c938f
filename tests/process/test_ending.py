# SPDX-License-Identifier: MIT
"""Waiting for the end of a process, beside whoever else waits for it."""

from __future__ import annotations

import os
import resource
import subprocess
import time

import pytest

from ftpatch.process.process import ending

MANY = 1100
"""More descriptors than select() takes (FD_SETSIZE)."""


@pytest.mark.parametrize("held", [0, MANY])
def test_it_is_seen_and_left_to_its_parent(held: int) -> None:
    if held and resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2 * MANY:
        pytest.skip("may not open so many files")
    fds = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(held)]
    try:
        with subprocess.Popen(["sh", "-c", "read line; exit 7"], stdin=subprocess.PIPE) as child:
            with ending(child.pid) as has_ended:
                begun = time.monotonic()
                assert not has_ended(0) and not has_ended(0.05)
                assert 0.05 <= time.monotonic() - begun < 5
                child.stdin.close()  # type: ignore[union-attr]
                child.stdin = None
                assert has_ended(None) and has_ended(0)
            assert child.wait() == 7
        with pytest.raises(ProcessLookupError), ending(child.pid):
            pass
    finally:
        for fd in fds:
            os.close(fd)
