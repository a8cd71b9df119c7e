-- How long the ended runs of a workflow or task are kept, where that is said of it by name.
CREATE TABLE kept_names (
    name TEXT PRIMARY KEY,
    rule TEXT NOT NULL
) STRICT;

-- Who archives runs before they are deleted; another may do so from `until` on. At most one row.
CREATE TABLE upkeep (
    upkeep INTEGER PRIMARY KEY,
    holder TEXT NOT NULL,
    until REAL NOT NULL
) STRICT;
