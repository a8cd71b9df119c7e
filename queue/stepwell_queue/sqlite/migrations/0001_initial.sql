-- What work is addressed to. Rows are added, never changed or deleted, so a number may be remembered.
CREATE TABLE targets (
    target INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (queue, name, version, kind)
) STRICT;

-- A run is one narrow row; values over 1 KiB live in blobs, so that a change of status never rewrites them.
-- `worker` is set exactly while the status is RUNNING (2); `due` only while it is SCHEDULED (0) or PARKED (3).
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    target INTEGER NOT NULL,
    status INTEGER NOT NULL,
    fence INTEGER NOT NULL DEFAULT 0,
    worker INTEGER,
    priority INTEGER NOT NULL,
    phase INTEGER NOT NULL DEFAULT 0,
    rollback INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    nonce INTEGER NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    started REAL,
    ended REAL,
    due REAL,
    scheduled REAL,
    deadline REAL,
    parent INTEGER,
    parent_id TEXT,
    parent_path TEXT,
    waiting TEXT NOT NULL DEFAULT '',
    digest BLOB NOT NULL,
    options BLOB NOT NULL,
    args BLOB,
    value BLOB DEFAULT x''
) STRICT;

-- status and crashes are in the index so that a seek reads nothing else
CREATE INDEX runs_ready ON runs (target, priority DESC, run, status, crashes)
    WHERE status = 1 AND crashes < 2;
CREATE INDEX runs_alone ON runs (target, priority DESC, run, status, crashes)
    WHERE status = 1 AND crashes >= 2;
CREATE INDEX runs_due ON runs (due) WHERE due IS NOT NULL;
CREATE INDEX runs_held ON runs (worker) WHERE worker IS NOT NULL;
CREATE INDEX runs_children ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended) WHERE ended IS NOT NULL;
CREATE INDEX runs_attention ON runs (status) WHERE status BETWEEN 4 AND 6;

-- role: 0 arguments, 1 result or error
CREATE TABLE blobs (
    run INTEGER NOT NULL,
    role INTEGER NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (run, role)
) STRICT;

-- `fence` is the claim that wrote the record: it tells whether a dead worker had made progress.
CREATE TABLE journal (
    entry INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    at REAL NOT NULL,
    attempt INTEGER NOT NULL,
    started REAL NOT NULL,
    digest INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    UNIQUE (run, seq)
) STRICT;

CREATE TABLE open_ops (
    op INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    due REAL,
    attempt INTEGER NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (run, path)
) STRICT;

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    uid TEXT NOT NULL,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    status INTEGER NOT NULL,
    value BLOB NOT NULL,
    at REAL NOT NULL,
    absorbed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (run, uid)
) STRICT;

CREATE INDEX inbox_waiting ON inbox (run) WHERE absorbed = 0;

-- The lease of everything a worker holds: valid until `until` on the monotonic clock of boot `boot`.
-- `token` names the process's lock file; `swept` counts how often its runs were handed over.
CREATE TABLE workers (
    worker INTEGER PRIMARY KEY AUTOINCREMENT,
    token TEXT NOT NULL,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started REAL NOT NULL,
    until REAL NOT NULL,
    swept INTEGER NOT NULL DEFAULT 0,
    queues TEXT NOT NULL,
    serves TEXT NOT NULL
) STRICT;

CREATE TABLE audit (
    entry INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    uid TEXT NOT NULL,
    at REAL NOT NULL,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    UNIQUE (run, uid)
) STRICT;
