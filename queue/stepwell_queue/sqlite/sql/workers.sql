-- name: register
INSERT INTO workers (worker, token, name, host, boot, pid, started, until, queues, serves, key)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: renew
UPDATE workers SET until = ? WHERE worker = ?

-- name: say_state
UPDATE workers SET state = ? WHERE worker = ?

-- name: unregister
DELETE FROM workers WHERE worker = ?

-- name: hand_back
UPDATE runs SET status = 1, worker = NULL, updated = ? WHERE worker = ?
RETURNING target, run

-- name: beat
UPDATE workers SET until = ? WHERE worker = ? RETURNING swept

-- name: leases
SELECT worker, token, boot, until, EXISTS (SELECT 1 FROM runs r WHERE r.worker = w.worker)
FROM workers w WHERE key = ''

-- name: held_by
SELECT run, fence, crashes,
    (SELECT j.fence FROM journal j WHERE j.run = r.run ORDER BY j.seq DESC LIMIT 1)
FROM runs r WHERE worker = ?

-- name: hand_over
UPDATE runs SET status = ?, due = ?, worker = NULL, crashes = ?, updated = ?, fence = fence + 1
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
SELECT token, boot, max(until), key <> '' FROM workers WHERE token <> ? GROUP BY token, boot, key <> ''

-- name: first_expiry
SELECT min(until) FROM workers w WHERE token <> ? AND key = ''
    AND EXISTS (SELECT 1 FROM runs r WHERE r.worker = w.worker)

-- name: remote_lapsed
SELECT worker, token, boot <> ?, EXISTS (SELECT 1 FROM runs r WHERE r.worker = w.worker)
FROM workers w WHERE token <> ? AND key <> '' AND (boot <> ? OR until < ?)

-- name: adopt
UPDATE workers SET token = ?, boot = ?, until = ? WHERE key <> ''
RETURNING worker, token, name, host, boot, pid, started, until, queues, serves, key, swept

-- name: held_by_remote
SELECT r.run, r.id, r.worker FROM workers w JOIN runs r ON r.worker = w.worker WHERE w.key <> ''

-- name: find_remote
SELECT worker, queues, serves FROM workers WHERE key = ?

-- name: attach
UPDATE workers SET token = ?, name = ?, host = ?, boot = ?, pid = ?, until = ?, queues = ?, serves = ?
WHERE worker = ? RETURNING swept

-- name: fences_of
SELECT run, fence FROM runs WHERE worker = ?

-- name: fences_at
SELECT run, status, fence, worker FROM runs WHERE run IN (SELECT value FROM json_each(?))

-- name: hand_back_one
UPDATE runs SET status = 1, worker = NULL, updated = ? WHERE run = ? RETURNING target
