"""The time of a server: what is due by its clock must be due for its workers, too."""

from __future__ import annotations

from collections.abc import Callable

from stepwell_queue.clock import Clock, Timer


class ServerClock:
    """A clock that differs from the one of this machine by as much as the server's does.

    Without it, a worker whose clock is behind would find that nothing is due of what the server
    has just handed to it for being due, and give it back, again and again.
    """

    def __init__(self, local: Clock) -> None:
        self._local = local
        self._ahead = 0.0

    def now(self) -> float:
        return self._local.now() + self._ahead

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return self._local.call_at(when - self._ahead, callback)

    def local(self) -> float:
        """Return the time of this machine."""
        return self._local.now()

    def learn(self, asked: float, said: float) -> None:
        """Take in what the server said its time is; `asked` by `local`, just before.

        It said so between then and now. What fits that already is kept, so that clocks that agree
        are left alone; else the later bound is taken, since being early is what costs.
        """
        if not said - self._local.now() <= self._ahead <= said - asked:
            self._ahead = said - asked
