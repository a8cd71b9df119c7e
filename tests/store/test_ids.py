"""Run ids and nonces: well formed, never twice, not even across a fork."""

from __future__ import annotations

import functools
import os
import uuid

from stepwell_queue import RandomIds


class Noon:
    def now(self) -> float:
        return 1_700_000_000.123

    def call_at(self, when: float, callback: object) -> object:
        raise NotImplementedError


def test_run_ids_are_uuids_of_version_7_with_the_time_in_front() -> None:
    ids = RandomIds(Noon())  # type: ignore[arg-type]  # only now() is used
    made = {ids.run_id() for _ in range(2000)}
    assert len(made) == 2000
    for text in made:
        one = uuid.UUID(text)
        assert (one.version, one.variant, str(one)) == (7, uuid.RFC_4122, text)
        assert one.int >> 80 == 1_700_000_000_123


def test_all_bits_but_time_version_and_variant_are_random() -> None:
    ids = RandomIds(Noon())  # type: ignore[arg-type]  # only now() is used
    made = [uuid.UUID(ids.run_id()).int & (1 << 80) - 1 for _ in range(2000)]
    once, always = functools.reduce(int.__or__, made), functools.reduce(int.__and__, made)
    assert once == 0x7FFF_BFFF_FFFF_FFFF_FFFF
    assert always == 0x7000_8000_0000_0000_0000


def test_nonces_have_63_bits_and_differ() -> None:
    ids = RandomIds(Noon())  # type: ignore[arg-type]  # only now() is used
    nonces = {ids.nonce() for _ in range(2000)}
    assert len(nonces) == 2000
    assert all(0 <= nonce < 1 << 63 for nonce in nonces)


def test_a_forked_child_makes_other_ids_than_its_parent() -> None:
    ids = RandomIds(Noon())  # type: ignore[arg-type]  # only now() is used
    ids.run_id()
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.write(writes, " ".join(ids.run_id() for _ in range(50)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    theirs = os.read(reads, 65536).decode().split()
    os.close(reads)
    assert len(theirs) == 50
    assert not {ids.run_id() for _ in range(50)} & set(theirs)
