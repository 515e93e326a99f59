"""Messages over a stream socket: one frame each, with a version, limits and a deadline.

A frame is, little-endian: magic (4 bytes), version (u16), zero (u16), header length (u32), payload length (u64);
then the header, JSON `{"tree": ..., "arrays": [{"dtype", "shape"}]}`; then the arrays' bytes, one after the other.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from typing import Any

import numpy as np

from conformance import codec
from conformance.codec import ProtocolError
from conformance.execution.deadline import Deadline
from conformance.execution.errors import DeadlineExceeded, WorkerDied

MAGIC = b"CNFW"
VERSION = 1
MAX_HEADER_BYTES = 64 * 2**20
MAX_PAYLOAD_BYTES = 4 * 2**30
PREFIX = struct.Struct("<4sHHIQ")


class Channel:
    """One end of a stream socket, which it owns. `peer` names the other end in messages.

    A frame that was cut off by a deadline or a malformed one leaves the stream out of step: the channel is closed.
    """

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self._socket = sock
        self._peer = peer

    @property
    def socket(self) -> socket.socket:
        """The socket below, for passing descriptors and for selectors."""
        return self._socket

    def close(self) -> None:
        """Close the socket; doing it again does nothing."""
        self._socket.close()

    def send(self, value: object, deadline: Deadline) -> None:
        """Send one value. Raises ProtocolError (it cannot travel; nothing was sent), WorkerDied, DeadlineExceeded."""
        tree, arrays = codec.pack(value)
        shapes = [{"dtype": array.dtype.name, "shape": list(array.shape)} for array in arrays]
        header = json.dumps({"tree": tree, "arrays": shapes}, allow_nan=False, separators=(",", ":")).encode()
        payload = sum(array.nbytes for array in arrays)
        _check_sizes(len(header), payload)
        parts: list[bytes | memoryview] = [PREFIX.pack(MAGIC, VERSION, 0, len(header), payload) + header]
        parts += [array.reshape(-1).view(np.uint8).data for array in arrays if array.nbytes]
        for part in parts:
            self._limit(deadline, "taken a message")
            try:
                self._socket.sendall(part)
            except TimeoutError:
                raise self._too_late(deadline, "taken a message") from None
            except OSError as error:
                raise self._gone(error) from error

    def receive(self, deadline: Deadline) -> Any:
        """The next value. Raises ProtocolError for a malformed frame, WorkerDied, DeadlineExceeded."""
        prefix = self._read(PREFIX.size, deadline)
        try:
            header_size, payload_size = _check_prefix(bytes(prefix))
            header = self._read(header_size, deadline)
            payload = self._read(payload_size, deadline)
            return decode(bytes(header), payload)
        except ProtocolError:
            self.close()
            raise

    def _read(self, size: int, deadline: Deadline) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        done = 0
        while done < size:
            self._limit(deadline, "answered")
            try:
                count = self._socket.recv_into(view[done:])
            except TimeoutError:
                raise self._too_late(deadline, "answered") from None
            except OSError as error:
                raise self._gone(error) from error
            if count == 0:
                cut = f" after {done} of {size} bytes" if done else ""
                raise WorkerDied(f"{self._peer} closed the channel{cut}")
            done += count
        return data

    def _limit(self, deadline: Deadline, what: str) -> None:
        remaining = deadline.remaining()
        if remaining == 0:  # which a socket would take for "do not block"
            raise self._too_late(deadline, what)
        try:
            self._socket.settimeout(remaining)
        except OSError as error:
            raise self._gone(error) from error

    def _too_late(self, deadline: Deadline, what: str) -> DeadlineExceeded:
        self.close()
        return DeadlineExceeded(f"{self._peer} has not {what} within {deadline}")

    def _gone(self, error: OSError) -> WorkerDied:
        return WorkerDied(f"the channel to {self._peer} broke: {error}")


def decode(header: bytes, payload: bytearray) -> Any:
    """The value in a frame's header and payload, whose arrays may share memory with `payload`. Raises ProtocolError."""
    try:
        parsed = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a header is not JSON: {error}") from error
    if not isinstance(parsed, dict) or set(parsed) != {"tree", "arrays"} or not isinstance(parsed["arrays"], list):
        raise ProtocolError("a header should be a table of 'tree' and the list 'arrays', and nothing else")
    arrays = []
    offset = 0
    for index, described in enumerate(parsed["arrays"]):
        dtype, shape = _check_description(described, index)
        size = math.prod(shape) * dtype.itemsize
        if size > len(payload) - offset:
            raise ProtocolError(
                f"array {index} ({dtype.name} {shape}) needs {size} bytes, but {len(payload) - offset} are left"
            )
        chunk = np.frombuffer(payload, dtype=np.uint8, count=size, offset=offset)
        if dtype.kind == "b" and size and int(chunk.max()) > 1:
            raise ProtocolError(f"array {index} should hold only the bytes 0 and 1, as a bool array does")
        try:
            arrays.append(np.require(chunk.view(dtype).reshape(shape), requirements=["ALIGNED"]))
        except ValueError as error:
            raise ProtocolError(f"array {index} cannot have the shape {shape}: {error}") from error
        offset += size
    if offset != len(payload):
        raise ProtocolError(f"the arrays described take {offset} bytes, but {len(payload)} came")
    return codec.unpack(parsed["tree"], arrays)


def _check_prefix(prefix: bytes) -> tuple[int, int]:
    magic, version, zero, header_size, payload_size = PREFIX.unpack(prefix)
    if magic != MAGIC or zero != 0:
        raise ProtocolError(f"a frame starts with {prefix[:8]!r}, but should start with {MAGIC!r}: not this protocol")
    if version != VERSION:
        raise ProtocolError(f"the other end speaks version {version} of the protocol, this one version {VERSION}")
    _check_sizes(header_size, payload_size)
    return header_size, payload_size


def _check_sizes(header: int, payload: int) -> None:
    if header > MAX_HEADER_BYTES:
        raise ProtocolError(f"a header of {header} bytes, but at most {MAX_HEADER_BYTES} are allowed")
    if payload > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"arrays of {payload} bytes, but at most {MAX_PAYLOAD_BYTES} are allowed")


def _check_description(described: object, index: int) -> tuple[np.dtype[Any], list[int]]:
    if not isinstance(described, dict) or set(described) != {"dtype", "shape"}:
        raise ProtocolError(f"array {index} should be described by its 'dtype' and 'shape', and nothing else")
    name, shape = described["dtype"], described["shape"]
    if not isinstance(name, str) or name not in codec.DTYPES:
        raise ProtocolError(f"array {index} has dtype {name!r:.40}, but only {', '.join(codec.DTYPES)} travel")
    if not isinstance(shape, list) or len(shape) > codec.MAX_DIMENSIONS:
        raise ProtocolError(f"array {index} should have a list of at most {codec.MAX_DIMENSIONS} lengths as shape")
    # An array without elements may still not claim lengths that numpy cannot hold.
    if any(type(length) is not int or not 0 <= length <= codec.MAX_ARRAY_BYTES for length in shape):
        raise ProtocolError(f"array {index} has the shape {shape!r:.80}, but lengths are 0 to {codec.MAX_ARRAY_BYTES}")
    return codec.DTYPES[name], shape
