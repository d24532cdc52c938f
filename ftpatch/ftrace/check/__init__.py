"""Invariants of an image's table and sites."""
