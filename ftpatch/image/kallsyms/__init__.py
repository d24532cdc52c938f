# SPDX-License-Identifier: MIT
"""Symbols as kallsyms prints them, of symbol tables and of the tables that kernels carry."""
