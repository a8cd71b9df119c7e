-- What is started at certain times. `next` is the tick that comes next: who starts its run sets the one after it, and
-- only if nobody has done so. NULL = no more ticks. `source` names the module that declares it; '' = made at run time.
CREATE TABLE schedules (
    schedule INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL,
    plan BLOB NOT NULL,
    overlap INTEGER NOT NULL,
    source TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    next REAL,
    last REAL,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX schedules_due ON schedules (next) WHERE next IS NOT NULL AND paused = 0;

-- What became of the last ticks of each. Those whose runs have not ended stay, since overlaps are seen here.
CREATE TABLE ticks (
    tick_id INTEGER PRIMARY KEY,
    schedule INTEGER NOT NULL,
    tick REAL NOT NULL,
    at REAL NOT NULL,
    run INTEGER,
    run_id TEXT,
    why TEXT NOT NULL,
    manual INTEGER NOT NULL
) STRICT;

CREATE INDEX ticks_of_schedule ON ticks (schedule);
