"""Differences between two images."""
