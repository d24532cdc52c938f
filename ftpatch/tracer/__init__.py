# SPDX-License-Identifier: MIT
"""Tracers of programs and their libraries: function, function_graph, function_profile."""
