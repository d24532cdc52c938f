# SPDX-License-Identifier: MIT
"""One image updated: read it, plan, verify all, write all."""
