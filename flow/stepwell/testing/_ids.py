"""Ids that a test can foresee."""

from __future__ import annotations


class KitIds:
    """Ids that are the same in every test: run-1, run-2 and so on; each life has its own."""

    def __init__(self, life: int, *, nonces_of_life: bool) -> None:
        """`nonces_of_life`: nonces, too; else a start that is repeated has the same chance."""
        self._life, self._runs = life, 0
        self._nonces = life << 32 if nonces_of_life else 0

    def run_id(self) -> str:
        self._runs += 1
        return f"run-{self._runs}" if self._life == 1 else f"run-{self._life}-{self._runs}"

    def nonce(self) -> int:
        self._nonces += 1
        return self._nonces
