# SPDX-License-Identifier: MIT
"""Running processes of arm64 on a newer kernel: what most of it depends on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from . import test_process_ends, test_process_probes, test_process_walks, test_processes
from .process_guest import ALSO

CHECKS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "function_graph": partial(test_processes.test_calls_are_counted, tracer="function_graph"),
    "pending": test_processes.test_pending_calls_return,
    "probes_jump": partial(test_process_probes.test_hits_and_values, way="jump"),
    "probes_library": test_process_probes.test_a_library_function,
    "probes_pending": test_process_probes.test_pending_calls_return,
    "walks_left": test_process_walks.test_taken_out_while_an_exception_cleans_up,
    "walks_awaited": test_process_walks.test_a_walk_is_waited_for,
    "kills": test_process_ends.test_killed_at_any_moment,
}


@pytest.mark.parametrize("case", ALSO)
def test_as_on_the_older_one(said_by_newer: dict[str, Any], case: str) -> None:
    CHECKS[case](said_by_newer)
