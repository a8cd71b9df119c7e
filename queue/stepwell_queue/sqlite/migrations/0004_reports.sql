-- What became of the attempts of tasks, and of steps with a queue, that did not end well: the first few of a run and
-- the last. `number` is which attempt it was. `error` is NULL where the worker died, and empty where it was too large.
CREATE TABLE failures (
    failure INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    started REAL NOT NULL,
    ended REAL NOT NULL,
    worker TEXT NOT NULL,
    error BLOB
) STRICT;

CREATE INDEX failures_of_run ON failures (run);

-- dead letters, by when they failed; status is in the index so that it is enough to choose by
CREATE INDEX runs_failed ON runs (ended, run, target, status) WHERE status = 11;

-- What a run says of itself while it runs. `fence` and `number` name the report that came last, so that one which is
-- said again is known. `lines` and `bytes`: what of its log is kept. `fraction` NULL = it has reported no progress.
CREATE TABLE reports (
    run INTEGER PRIMARY KEY,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    fraction REAL,
    note TEXT NOT NULL,
    at REAL NOT NULL,
    lines INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE log_lines (
    line INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    at REAL NOT NULL,
    text TEXT NOT NULL,
    fields TEXT NOT NULL,
    path TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE INDEX log_lines_of_run ON log_lines (run, line, bytes);
