# SPDX-License-Identifier: MIT
"""Tests."""
