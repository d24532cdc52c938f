# SPDX-License-Identifier: MIT
"""Sites: the table, its records, filters, plans, and what ftrace_init will say of them."""
