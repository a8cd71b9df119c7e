-- What is set for a queue beside its runs. `declared` tells which declaration in code the settings came from, so that
-- declaring the same again leaves alone what was changed since. `gated`: there are limits among them.
CREATE TABLE queues (
    queue TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    until REAL,
    reason TEXT NOT NULL DEFAULT '',
    settings TEXT NOT NULL DEFAULT '{}',
    gated INTEGER NOT NULL DEFAULT 0,
    declared TEXT NOT NULL DEFAULT '',
    ageing_since REAL
) STRICT;

-- `open` = 0: work for it is claimed by way of the gate of its queue, which keeps to what is set for it.
-- `special` = 1: runs for it have had keys or expiries, so it is never open again.
ALTER TABLE targets ADD COLUMN open INTEGER NOT NULL DEFAULT 1;
ALTER TABLE targets ADD COLUMN special INTEGER NOT NULL DEFAULT 0;

-- `lane`: a number made of queue and key; 0 = no key. `awaited` = 1: runs wait for its end.
ALTER TABLE runs ADD COLUMN lane INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN awaited INTEGER NOT NULL DEFAULT 0;

-- What few runs ask for. Apart, since each column of `runs` is written with each change of a status (six more cost the
-- plain path 4 %). `asked`: the priority that was asked for, where that in `runs` is another, since runs of the queue
-- gain by waiting. `expires` goes once it has passed. `unique_hold`: for how long the run has its unique key.
CREATE TABLE terms (
    run INTEGER PRIMARY KEY,
    key TEXT,
    asked INTEGER,
    expires REAL,
    unique_key TEXT,
    unique_hold INTEGER,
    unique_until REAL
) STRICT;

CREATE INDEX terms_expire ON terms (expires) WHERE expires IS NOT NULL;
-- A key that is taken has `unique_hold` >= 0; the runs that had it before keep it as -1 - `unique_hold`, so that one of
-- them can have it again when it is taken up. Looking for who has a key does not pass those.
CREATE INDEX terms_unique ON terms (unique_key) WHERE unique_hold >= 0;
-- a call that replaced a run is known by this when it is said again
CREATE INDEX audit_replaced ON audit (uid) WHERE action = 'replace';

DROP INDEX runs_ready;
DROP INDEX runs_held;
DROP INDEX runs_ended;
CREATE INDEX runs_ready ON runs (target, priority DESC, run, status, crashes, lane)
    WHERE status = 1 AND crashes < 2 AND lane = 0;
CREATE INDEX runs_lanes ON runs (target, priority DESC, lane, run, status, crashes)
    WHERE status = 1 AND crashes < 2 AND lane <> 0;
-- what is running, by worker, target and lane: limits are counted here, where every claim is seen
CREATE INDEX runs_held ON runs (worker, target, lane) WHERE worker IS NOT NULL;
-- what has ended, by queue: to delete the oldest, and to count the latest
CREATE INDEX runs_ended ON runs (target, ended, status, parent) WHERE ended IS NOT NULL;

-- Tokens of a rate limit as they were at `at`; a row is made when the first is taken, and goes once it is full again.
-- `since`: when it was full last.
CREATE TABLE buckets (
    bucket INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    lane INTEGER NOT NULL,
    tokens REAL NOT NULL,
    at REAL NOT NULL,
    full REAL NOT NULL,
    since REAL NOT NULL,
    UNIQUE (queue, lane)
) STRICT;

CREATE INDEX buckets_full ON buckets (full);

-- Whose ends a run waits for, until they come. `anyhow`: it starts however they end; else `failure` is its error.
CREATE TABLE dependencies (
    dependency INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    needs INTEGER NOT NULL,
    anyhow INTEGER NOT NULL,
    failure BLOB NOT NULL,
    UNIQUE (run, needs)
) STRICT;

CREATE INDEX dependencies_needs ON dependencies (needs);
