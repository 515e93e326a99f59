"""Frames arrive whole, in time and in the agreed form, or an error says which of these failed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.codec import ProtocolError
from conformance.execution.channel import MAGIC, MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, PREFIX, VERSION, Channel, decode
from conformance.execution.deadline import Deadline
from conformance.execution.errors import DeadlineExceeded, WorkerDied


def soon() -> Deadline:
    return Deadline.after(30)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, "the peer")
    with theirs:
        yield channel, theirs
    channel.close()


def frame(header: bytes, payload: bytes = b"", *, magic: bytes = MAGIC, version: int = VERSION, zero: int = 0) -> bytes:
    return PREFIX.pack(magic, version, zero, len(header), len(payload)) + header + payload


def header(tree: Any, *arrays: Any) -> bytes:
    return json.dumps({"tree": tree, "arrays": list(arrays)}).encode()


def test_a_message_larger_than_any_buffer_arrives_whole(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    value = {"x": np.arange(2_000_000, dtype=np.float32), "flag": np.array([True, False]), "odd": np.arange(3.0)}
    sender = threading.Thread(target=Channel(theirs, "the other").send, args=(value, soon()))
    sender.start()
    received = channel.receive(soon())
    sender.join()
    assert list(received) == list(value) and all(np.array_equal(received[key], value[key]) for key in value)
    assert all(array.flags.aligned for array in received.values())


def test_a_message_that_cannot_travel_leaves_the_channel_usable(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    with pytest.raises(ProtocolError):
        channel.send(object(), soon())
    channel.send("next", soon())
    assert Channel(theirs, "the other").receive(soon()) == "next"


def test_silence_ends_at_the_deadline(ends: tuple[Channel, socket.socket]) -> None:
    begin = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"the peer has not answered within 0\.1 s"):
        ends[0].receive(Deadline.after(0.1))
    assert 0.09 < time.monotonic() - begin < 2


def test_a_peer_that_trickles_bytes_cannot_stretch_the_deadline(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    stop = threading.Event()

    def trickle() -> None:
        for byte in frame(header(["x" * 500])):
            if stop.wait(0.02):
                return
            theirs.send(bytes([byte]))

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        with pytest.raises(DeadlineExceeded):
            channel.receive(Deadline.after(0.2))
    finally:
        stop.set()
        sender.join()


def test_a_peer_that_does_not_read_stops_a_send_at_the_deadline(ends: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(DeadlineExceeded, match="has not taken a message"):
        ends[0].send(np.zeros(10_000_000), Deadline.after(0.1))


def test_a_deadline_that_has_passed_is_not_taken_for_none(ends: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(DeadlineExceeded):
        ends[0].receive(Deadline.after(0))


def test_the_end_of_the_stream_is_a_dead_peer(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.close()
    with pytest.raises(WorkerDied, match=r"the peer closed the channel$"):
        channel.receive(soon())
    with pytest.raises(WorkerDied, match="broke"):
        channel.send(1, soon())


def test_a_stream_that_ends_within_a_frame_says_where(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.sendall(frame(header(None))[:-3])
    theirs.close()
    with pytest.raises(WorkerDied, match="after 25 of 28 bytes"):
        channel.receive(soon())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not this protocol"),
        (frame(header(None), magic=b"CNFX"), "not this protocol"),
        (frame(header(None), zero=1), "not this protocol"),
        (
            frame(header(None), version=VERSION + 1),
            f"version {VERSION + 1} of the protocol, this one version {VERSION}",
        ),
        (PREFIX.pack(MAGIC, VERSION, 0, MAX_HEADER_BYTES + 1, 0), "header of"),
        (PREFIX.pack(MAGIC, VERSION, 0, 1, MAX_PAYLOAD_BYTES + 1), "arrays of"),
        (frame(b"\xff{}"), "not JSON"),
        (frame(b"[" * 100_000), "not JSON"),
        (frame(b"[]"), "should be a table"),
        (frame(b'{"tree": null}'), "should be a table"),
        (frame(b'{"tree": NaN, "arrays": []}'), "bare number"),
        (frame(header(None, "float32")), "described by its 'dtype' and 'shape'"),
        (frame(header(None, {"dtype": "object", "shape": [1]}), b"12345678"), "dtype 'object'"),
        (frame(header(None, {"dtype": ["float32"], "shape": [1]}), b"1234"), "dtype"),
        (frame(header({"array": 0}, {"dtype": "float32", "shape": [2]}), b"1234"), "needs 8 bytes, but 4 are left"),
        (frame(header({"array": 0}, {"dtype": "float32", "shape": [1]}), b"12345678"), "take 4 bytes, but 8 came"),
        (frame(header({"array": 0}, {"dtype": "float32", "shape": [-1]}), b"1234"), "lengths are 0 to"),
        (frame(header({"array": 0}, {"dtype": "float32", "shape": [1.0]}), b"1234"), "lengths are 0 to"),
        (frame(header({"array": 0}, {"dtype": "float32", "shape": [True]}), b"1234"), "lengths are 0 to"),
        (frame(header({"array": 0}, {"dtype": "int8", "shape": [1] * 9}), b"1"), "at most 8 lengths"),
        (frame(header({"array": 0}, {"dtype": "int8", "shape": [0] + [2**31] * 7})), "cannot have the shape"),
        (frame(header({"array": 0}, {"dtype": "bool", "shape": [2]}), b"\x01\x02"), "only the bytes 0 and 1"),
        (frame(header(None, {"dtype": "int8", "shape": [1]}), b"1"), "referred to nowhere"),
    ],
)
def test_a_malformed_frame_is_refused_and_closes_the_channel(
    ends: tuple[Channel, socket.socket], data: bytes, message: str
) -> None:
    channel, theirs = ends
    theirs.sendall(data)
    with pytest.raises(ProtocolError, match=message):
        channel.receive(soon())
    with pytest.raises(WorkerDied):
        channel.receive(soon())


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=64))
def test_arbitrary_bytes_are_decoded_or_refused_but_never_anything_else(head: bytes, payload: bytes) -> None:
    try:
        decode(head, bytearray(payload))
    except ProtocolError as error:
        assert str(error)
