# SPDX-License-Identifier: MIT
"""Probes: what ftrace's kprobe_events says, for programs (Documentation/trace/kprobetrace.rst).

Text in, text out: nothing here opens an image or knows an instruction.
"""

from __future__ import annotations

from ftpatch.probe.definition import Definition
from ftpatch.probe.grammar import parse_probe, parse_probes
from ftpatch.probe.text import definition_text, format_value

__all__ = ["Definition", "definition_text", "format_value", "parse_probe", "parse_probes"]
