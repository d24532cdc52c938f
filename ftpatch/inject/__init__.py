"""Lays stubs, and the tracers that come with ftpatch, into programs."""

from ftpatch.inject.lay import Laid, lay
from ftpatch.inject.stub import Stub, read_stub
from ftpatch.inject.tracers import TRACERS, Tracer, tracer_of

__all__ = ["TRACERS", "Laid", "Stub", "Tracer", "lay", "read_stub", "tracer_of"]
