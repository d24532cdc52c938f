# SPDX-License-Identifier: MIT
"""Differences between two images."""
