-- name: register
INSERT INTO workers (token, name, host, boot, pid, started, until, queues, serves)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: renew
UPDATE workers SET until = ? WHERE worker = ?

-- name: unregister
DELETE FROM workers WHERE worker = ?

-- name: hand_back
UPDATE runs SET status = 1, worker = NULL, updated = ? WHERE worker = ?
RETURNING queue, kind, name, version, run
