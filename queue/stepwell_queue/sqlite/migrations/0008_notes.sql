-- How far a run has got with what it says. `generation` and `code`: the last note of its code that is stored, so that
-- a replay says nothing twice. `fence` and `number` name the items of its steps that came last, so that a batch which is
-- said again is known. `items` and `bytes`: what its steps have emitted, those with a queue included.
CREATE TABLE said (
    run INTEGER PRIMARY KEY,
    generation INTEGER NOT NULL,
    code INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE run_values (
    entry INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    at REAL NOT NULL,
    UNIQUE (run, name)
) STRICT;

-- "offset" is gapless from 1 in each stream of a run
CREATE TABLE stream_items (
    entry INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    stream TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    value BLOB NOT NULL,
    at REAL NOT NULL,
    path TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    UNIQUE (run, stream, "offset")
) STRICT;

-- `uid` is that of the question in the inbox; `refused`: the value is the reason
CREATE TABLE answers (
    entry INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    uid TEXT NOT NULL,
    refused INTEGER NOT NULL,
    value BLOB NOT NULL,
    at REAL NOT NULL,
    UNIQUE (run, uid)
) STRICT;
