"""Tests against real kernels: Debian's own vmlinux files, and what they say under QEMU."""
