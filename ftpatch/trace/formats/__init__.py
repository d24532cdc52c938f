# SPDX-License-Identifier: MIT
"""The formats of a report, one file each: they only render, in parts that are written as they come.

A file here that says REPORT is a format; there is no list of them.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ftpatch.trace.report import Report

__all__ = ["reports"]


@cache
def reports() -> dict[str, Report]:
    """All formats by name, those for people first."""
    modules = (import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__))
    found: list[Report] = [module.REPORT for module in modules]
    return {one.name: one for one in sorted(found, key=lambda one: (not one.text, one.name))}
