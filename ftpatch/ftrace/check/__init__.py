# SPDX-License-Identifier: MIT
"""Invariants of an image's table and sites."""
