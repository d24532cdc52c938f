"""arm64 (EM_AARCH64)."""
