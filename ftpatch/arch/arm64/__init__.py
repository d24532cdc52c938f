# SPDX-License-Identifier: MIT
"""arm64 (EM_AARCH64)."""
