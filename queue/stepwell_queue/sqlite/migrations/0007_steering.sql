-- What becomes of a paused run when it is resumed: it is PARKED (3) or READY (1) again, or SCHEDULED (0), at `due`.
CREATE TABLE pauses (
    run INTEGER PRIMARY KEY,
    status INTEGER NOT NULL,
    due REAL
) STRICT;

-- Workflows and tasks of which nothing is claimed, in all versions and queues, until they are resumed (0 = they were).
-- `heard`: the uids of the last changes, so that one which is said again does not undo what came after it.
CREATE TABLE paused_names (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    heard TEXT NOT NULL
) STRICT;

-- 1 = the name is paused; such a target is not open
ALTER TABLE targets ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
