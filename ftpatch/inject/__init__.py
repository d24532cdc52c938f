# SPDX-License-Identifier: MIT
"""Laying code and the runtime into a target."""
