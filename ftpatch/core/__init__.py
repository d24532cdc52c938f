# SPDX-License-Identifier: MIT
"""Vocabulary of every layer: columns, Changes, the journal."""
