# SPDX-License-Identifier: MIT
"""Run in a guest by its own Python: all cases, or those that are named. Each prints one line with
what it found, in JSON."""

from __future__ import annotations

import json
import sys
import time
import traceback

from tests.kernels import in_guest, in_guest_ends, in_guest_probes, in_guest_walks

__all__ = ["SAID"]

SAID = "@@ case "
"""Begins a line with the outcome of a case."""
CASES = (*(*in_guest.CASES, *in_guest_probes.CASES, *in_guest_walks.CASES, *in_guest_ends.CASES),)


def main() -> None:
    wanted = sys.argv[1:]  # which commands replace
    for case in CASES:
        if wanted and case.__name__ not in wanted:
            continue
        begun = time.monotonic()
        try:
            found = case()
        except BaseException:
            found = {"error": traceback.format_exc()}
        found["seconds"] = round(time.monotonic() - begun, 1)
        print(f"{SAID}{case.__name__} {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
