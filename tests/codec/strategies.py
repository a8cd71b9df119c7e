"""Random values of every kind that can be stored."""

from __future__ import annotations

import collections
import datetime as dt
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.codec.kinds import Access, Box, Colour, FrozenStruct, Model, Point, Row, Struct, Word

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too

ZONES = st.one_of(
    st.none(),
    st.sampled_from([dt.UTC, ZoneInfo("Europe/Rome"), ZoneInfo("America/New_York")]),
    st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone),
)

HASHABLE_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.complex_numbers(),
    ANY_TEXT,
    st.binary(max_size=20),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.dates(),
    st.datetimes(timezones=ZONES),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.sampled_from([*Colour, *Word, *Access, ...]),
    st.builds(Point, st.integers(), st.integers()),
    st.builds(PurePosixPath, st.text("ab/.", max_size=5)),
    st.builds(range, st.integers(), st.integers()),
)

SCALARS: st.SearchStrategy[Any] = st.one_of(
    HASHABLE_SCALARS,
    st.binary(max_size=20).map(bytearray),
    st.decimals(),
)

HASHABLE: st.SearchStrategy[Any] = st.recursive(
    HASHABLE_SCALARS,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.builds(FrozenStruct, some_name=st.integers()),
    ),
    max_leaves=4,
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(ANY_TEXT, inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.lists(inner, max_size=3).map(collections.deque),
        st.dictionaries(HASHABLE, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(HASHABLE, inner, max_size=3).map(
            lambda found: collections.defaultdict(list, found)
        ),
        st.dictionaries(HASHABLE, st.integers(), max_size=3).map(collections.Counter),
        st.builds(Box, inner),
        st.builds(Struct, st.integers(), inner),
        st.builds(Row, st.integers(), st.text()),
        st.builds(Model, a=st.integers(), anything=inner),
    )


VALUES: st.SearchStrategy[Any] = st.recursive(SCALARS, _containers, max_leaves=12)
