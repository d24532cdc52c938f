# SPDX-License-Identifier: MIT
"""Injecting code and the runtime into a target."""
