"""Closing a listener without losing a connection that is on its way."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys

_SO_ATTACH_FILTER = 26


def deafen(listening: socket.socket) -> None:
    """Let no new connection begin, while those that the system has accepted stay in its queue.

    A listener that is closed resets the connections in its queue, whose clients may have sent a
    whole request. On Linux a filter drops what asks for new ones first, and such clients try again
    elsewhere or find nobody listening; on other systems nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # return 0 bytes
    program = struct.pack("HP", 1, ctypes.addressof(drop))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
