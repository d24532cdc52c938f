# SPDX-License-Identifier: MIT
"""Events are read while a machine runs: here, a thread that shares memory with the reader."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch.boot import Slots
from ftpatch.boot import feed as feeds
from ftpatch.boot.console import Place, read_console
from ftpatch.boot.feed import Feed, FileFeed, MemoryFeed
from ftpatch.boot.stream import Source
from tests.boot.test_boot_tracer import source_of
from tests.support.command import PATIENCE

MEMORY, PAGE = 1 << 20, 4096
WORD = 5 * PAGE - 64
SITES = [0x8000 + 16 * i for i in range(8)]
TOP = 0xFFFF_C900_0001_4000
IN_MEMORY = 255  # the sink's number


class _Guest:
    """The tracer's side of the ring, written down from what its code does."""

    def __init__(self, feed: MemoryFeed, *, time: bool) -> None:
        memory, tell = feed.files
        self.tell, self.slots, self.taken = os.dup(tell), Slots(time), 0
        self.memory = mmap.mmap(memory, MEMORY)
        feed.started()

    def _number(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.memory, WORD + at)[0])

    def take(self) -> int:
        """A slot of its own, once there is one."""
        number, self.taken = self.taken, self.taken + 1
        struct.pack_into("<I", self.memory, WORD + Slots.HEAD, self.taken)
        until = time.monotonic() + PATIENCE
        while (number - self._number(Slots.TAIL)) & 0xFFFF_FFFF >= self.slots.count:
            assert time.monotonic() < until, "nobody reads"
            time.sleep(0.0005)
        return number

    def send(self, event: int) -> None:
        number = self.take()
        at = WORD - Slots.RING + number % self.slots.count * self.slots.size
        struct.pack_into("<iQ", self.memory, at + 4, -event, TOP - 16 * event)
        if self.slots.time:
            struct.pack_into("<Q", self.memory, at + 16, 1000 + event)
        struct.pack_into("<i", self.memory, at, SITES[event % len(SITES)])
        if number % self.slots.told == 0:
            os.write(self.tell, b"\1")

    @property
    def stopped(self) -> bool:
        return self._number(0) >= 1 << 31  # less than 0

    def close(self) -> None:
        """As a machine that has ended."""
        os.close(self.tell)


def _source(*, timed: bool = False) -> Source:
    return source_of("x86_64", time=timed, sites=SITES, sink=IN_MEMORY)


def _drained(feed: Feed, wanted: int) -> list[int]:
    """Places, until there are so many."""
    places, until = list[int](), time.monotonic() + PATIENCE
    while len(places) < wanted and time.monotonic() < until:
        places += feed.read()[0].tolist()
    return places


@contextmanager
def _running(guest: _Guest, count: int) -> Iterator[None]:
    def run() -> None:
        for event in range(count):
            guest.send(event)
        guest.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE)
    assert not thread.is_alive()


def _expected(count: int) -> list[int]:
    return [SITES[event % len(SITES)] for event in range(count)]


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("last", [0, 300])
def test_nothing_is_lost_in_the_ring(tmp_path: Path, timed: bool, last: int) -> None:
    count, source = 5000, _source(timed=timed)
    feed = MemoryFeed(source, tmp_path / "stream", MEMORY, WORD, last)
    guest = _Guest(feed, time=timed)
    with _running(guest, count):
        assert _drained(feed, count) == _expected(count)
    feed.finish()
    assert feed.lost == 0
    kept = last or count
    rows = np.fromfile(tmp_path / "stream", np.uint8).reshape(kept, -1)
    events, numbers = source.read(rows), np.arange(count)[-kept:]
    assert events.place.tolist() == _expected(count)[-kept:]
    assert events.sp.tolist() == [TOP - 16 * event for event in numbers.tolist()]
    assert events.back is not None and events.back.tolist() == (-numbers).tolist()
    assert not timed or events.time.tolist() == (1000 + numbers).tolist()


@pytest.mark.parametrize("last", [0, 40])
def test_a_recording_ends_where_it_was_stopped(tmp_path: Path, last: int) -> None:
    """What the machine had sent by then, and goes on to send, is not kept."""
    feed = MemoryFeed(_source(), tmp_path / "stream", MEMORY, WORD, last)
    guest = _Guest(feed, time=False)
    with _running(guest, 500):
        got = len(_drained(feed, 100))
        feed.stop(90)
        assert guest.stopped
        assert got + len(_drained(feed, 500 - got)) == 500
    feed.finish()
    rows = np.fromfile(tmp_path / "stream", np.uint8).reshape(-1, Slots(False).size)
    wanted = _expected(90)[-last:] if last else _expected(90)
    assert _source().read(rows).place.tolist() == wanted


def test_a_slot_that_is_never_filled_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "STUCK", 0.3)
    feed = MemoryFeed(_source(), tmp_path / "stream", MEMORY, WORD, 0)
    guest = _Guest(feed, time=False)
    guest.take()  # by a processor that stopped behind this
    with _running(guest, 400):
        assert _drained(feed, 400) == _expected(400)
    feed.finish()
    assert feed.lost == 1


def test_a_flight_recorder_of_a_device(tmp_path: Path) -> None:
    """The end of a file, of the events up to where it was stopped."""
    source, stream = source_of("x86_64", time=False, sites=SITES), tmp_path / "stream"
    raw = b"".join(
        struct.pack("<BiiQ", 0xF7, SITES[event % 8], -event, TOP - 16 * event)[:15]
        for event in range(50)
    )
    for keep, last in ((0, 0), (0, 7), (30, 0), (30, 7)):
        stream.unlink(missing_ok=True)
        feed = FileFeed(source, stream, last)
        stream.write_bytes(raw)
        assert _drained(feed, 50) == _expected(50)
        if keep:
            feed.stop(keep)
        feed.finish()
        upto = raw[: (keep or 50) * 15]
        assert stream.read_bytes() == (upto[-last * 15 :] if last else upto)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (
            "WARNING: CPU: 0 PID: 1 at kernel/irq/proc.c:12 init_irq_proc+0x1b/0x70",
            Place("kernel/irq/proc.c:12 init_irq_proc+0x1b/0x70", "init_irq_proc", 0x1B),
        ),
        (
            "WARNING: CPU: 3 PID: 1 at init_irq_proc+0x1b/0x70 [snd]",
            Place("init_irq_proc+0x1b/0x70", "init_irq_proc", 0x1B),
        ),
        (
            "WARNING: mm/slub.c:7 at free_it.isra.0+0x2/0x70, CPU#1: swapper/1",
            Place("mm/slub.c:7 at free_it.isra.0+0x2/0x70", "free_it.isra.0", 2),
        ),
        ("WARNING: the microcode is old", Place()),
    ],
)
def test_where_a_warn_was(tmp_path: Path, line: str, place: Place) -> None:
    (tmp_path / "console").write_text(f"[    0.100000][    T1] {line}\r\n")
    assert read_console(tmp_path / "console").warning == place
