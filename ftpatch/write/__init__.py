# SPDX-License-Identifier: MIT
"""Verify all, then write all; and take it back."""
