-- `key` names a worker that is reached over the network, through the server whose `token` the row has;
-- '' = a worker of a process that has this file open.
ALTER TABLE workers ADD COLUMN key TEXT NOT NULL DEFAULT '';

CREATE UNIQUE INDEX workers_key ON workers (key) WHERE key <> '';
