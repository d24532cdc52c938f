"""Injecting code and the runtime into a target."""
