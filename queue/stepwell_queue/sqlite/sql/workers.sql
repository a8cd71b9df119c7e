-- name: register
INSERT INTO workers (worker, token, name, host, boot, pid, started, until, queues, serves)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: renew
UPDATE workers SET until = ? WHERE worker = ?

-- name: unregister
DELETE FROM workers WHERE worker = ?

-- name: hand_back
UPDATE runs SET status = 1, worker = NULL, updated = ? WHERE worker = ?
RETURNING target, run

-- name: beat
UPDATE workers SET until = ? WHERE worker = ? RETURNING swept

-- name: leases
SELECT worker, token, boot, until, EXISTS (SELECT 1 FROM runs r WHERE r.worker = w.worker)
FROM workers w

-- name: held_by
SELECT run, fence, crashes,
    (SELECT j.fence FROM journal j WHERE j.run = r.run ORDER BY j.seq DESC LIMIT 1)
FROM runs r WHERE worker = ?

-- name: hand_over
UPDATE runs SET status = ?, due = ?, worker = NULL, crashes = ?, updated = ?
WHERE run = ? AND fence = ? AND worker = ? AND status = 2
RETURNING target

-- name: orphan_workers
SELECT DISTINCT worker FROM runs WHERE worker IS NOT NULL
    AND worker NOT IN (SELECT worker FROM workers)

-- name: count_sweep
UPDATE workers SET swept = swept + 1 WHERE worker = ?

-- name: still_held
SELECT run FROM runs WHERE worker = ?

-- name: foreign_tokens
SELECT token, boot, max(until) FROM workers WHERE token <> ? GROUP BY token, boot

-- name: first_expiry
SELECT min(until) FROM workers w WHERE token <> ?
    AND EXISTS (SELECT 1 FROM runs r WHERE r.worker = w.worker)
