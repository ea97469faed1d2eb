"""Addresses at which processes listen, from /proc: also of sockets that C++ opened."""

import os
import re
import struct
import threading
import time
from ipaddress import ip_address
from pathlib import Path

# state of a TCP socket; a UDP socket that no peer has (07) takes packets from anybody
_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def processes_under(root):
    """A process and all that descend from it."""
    children = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def listening_at(processes):
    """Addresses (`address:port`) at which the processes listen."""
    inodes = {inode for process in processes for inode in _sockets_of(process)}
    found = set()
    for table, state in (("tcp", _LISTENS), ("tcp6", _LISTENS), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                address, port = fields[1].split(":")
                found.add((_address(address), int(port, 16)))
    return found


def _sockets_of(process):
    for file in Path(f"/proc/{process}/fd").glob("*"):
        try:
            match = _SOCKET.match(os.readlink(file))
        except OSError:
            continue
        if match:
            yield match[1]


def _address(hexadecimal):
    words = [int(hexadecimal[i : i + 8], 16) for i in range(0, len(hexadecimal), 8)]
    return ip_address(struct.pack(f"={len(words)}I", *words))


class Watch:
    """Collects while its block runs where a process and its descendants listen."""

    def __init__(self, process):
        self.process, self.found, self.looks = process, set(), 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()

    def _look(self):
        while not self._stopped.is_set():
            self.found |= listening_at(processes_under(self.process))
            self.looks += 1
            time.sleep(0.05)

    @property
    def beyond_loopback(self):
        """Addresses that other machines reach."""
        return {(str(address), port) for address, port in self.found if not address.is_loopback}
