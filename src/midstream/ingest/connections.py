"""The connections of a server: their number and memory are bounded, and those that harm others are closed first.

A server that refuses newcomers when it is full is stopped by anyone who connects and does nothing. So a newcomer is
always accepted, and if there are too many, one of the address that has the most is closed: first of all one that has
not stored a record yet, and of equals the one that has been idle for the longest. In the same way what is not finished,
half a body or half a line, is dropped when there is too much of it: that which has held the most memory for the longest
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import itemgetter

from midstream.ingest.peer import Peer


class _Address:
    """The connections from one address, in the order of their last activity."""

    def __init__(self) -> None:
        self.new: dict[Peer, None] = {}
        self.proven: dict[Peer, None] = {}  # those that have stored records

    def __len__(self) -> int:
        return len(self.new) + len(self.proven)


class Connections:
    """All peers except those that were dismissed.

    Promised: they are never more than `most`, unless the records of more are being written, and what they have sent
    and not finished is never more than `memory` bytes and what they sent last.

    Not promised: that a peer may stay. One that is dismissed, or finds the connection closed, connects and sends again.
    """

    def __init__(self, most: int, idle: float, memory: int) -> None:
        self.idle = idle  # seconds that a peer may do nothing
        self._most, self._memory = most, memory
        self._addresses: dict[str, _Address] = {}
        self._held: dict[Peer, int] = {}  # {peer: bytes}, for all of them
        self._total = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Peer]:
        return iter(tuple(self._held))

    def add(self, peer: Peer) -> None:
        """Accept a peer; dismiss another one if there are too many."""
        if len(self) >= self._most:
            self._make_place()
        self._held[peer] = 0
        self._addresses.setdefault(peer.address, _Address()).new[peer] = None

    def remove(self, peer: Peer) -> None:
        """Forget a peer that is gone, or was dismissed."""
        if peer not in self._held:
            return
        self._total -= self._held.pop(peer)
        address = self._addresses[peer.address]
        address.new.pop(peer, None)
        address.proven.pop(peer, None)
        if not address:
            del self._addresses[peer.address]

    def moved(self, peer: Peer, stored: bool) -> None:
        """Note that something has happened for a peer."""
        if peer not in self._held:
            return
        address = self._addresses[peer.address]
        if stored or peer in address.proven:
            address.new.pop(peer, None)
            address.proven.pop(peer, None)
            address.proven[peer] = None
        else:
            del address.new[peer]
            address.new[peer] = None

    def hold(self, peer: Peer, size: int) -> None:
        """Note how many bytes of a peer are in memory; if there are too many in all, dismiss the most expensive."""
        if peer not in self._held:
            return
        self._total += size - self._held[peer]
        self._held[peer] = size
        while self._total > self._memory:
            candidates = [(held * other.age(), other) for other, held in self._held.items() if held and not other.busy]
            if not candidates:
                return
            self._dismiss(max(candidates, key=itemgetter(0))[1], "too much is under way, and this is the slowest")

    def _make_place(self) -> None:
        for address in sorted(self._addresses.values(), key=len, reverse=True):
            for peer in chain(address.new, address.proven):
                if not peer.busy:
                    self._dismiss(peer, "there are too many connections, and this one does the least")
                    return

    def _dismiss(self, peer: Peer, reason: str) -> None:
        self.remove(peer)
        peer.dismiss(reason)
