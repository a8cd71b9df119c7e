-- name: insert_run
INSERT INTO runs (id, target, priority, nonce, created, updated, digest, options, args,
    status, fence, started, worker, due, scheduled, deadline)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: insert_running
INSERT INTO runs (id, target, priority, nonce, created, updated, digest, options, args,
    status, fence, started, worker)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 1, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: insert_ready
INSERT INTO runs (id, target, priority, nonce, created, updated, digest, options, args, status)
VALUES {rows}
ON CONFLICT (id) DO NOTHING

-- name: insert_child
INSERT INTO runs (id, target, priority, nonce, created, updated, digest, options, args,
    status, due, scheduled, deadline, parent, parent_path, parent_id)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, run, ?, id FROM runs WHERE run = ?
ON CONFLICT (id) DO NOTHING

-- name: find_target
SELECT target FROM targets WHERE queue = ? AND kind = ? AND name = ? AND version = ?

-- name: insert_target
INSERT INTO targets (queue, kind, name, version, open, paused)
SELECT v.column1, v.column2, v.column3, v.column4, v.column5 AND NOT v.column6, v.column6 FROM (VALUES (?, ?, ?, ?,
    NOT EXISTS (SELECT 1 FROM queues WHERE queue = ? AND (paused = 1 OR gated = 1)),
    ? <> 2 AND EXISTS (SELECT 1 FROM paused_names WHERE name = ? AND paused = 1))) v

-- name: put_blob
INSERT INTO blobs (run, role, value) VALUES (?, ?, ?)
ON CONFLICT (run, role) DO UPDATE SET value = excluded.value

-- name: find_run
SELECT r.run, t.kind, t.name, t.version, r.digest, r.nonce, r.status, r.parent, r.fence
FROM runs r CROSS JOIN targets t ON t.target = r.target WHERE r.id = ?

-- name: ready_in_queue
SELECT 1 FROM targets WHERE queue = ? AND open = 0 AND paused = 0
UNION ALL
SELECT 1 FROM targets t CROSS JOIN runs r
    ON r.status = 1 AND r.crashes < 2 AND r.lane = 0 AND r.target = t.target WHERE t.queue = ? AND t.paused = 0
LIMIT 1

-- name: last_run
SELECT last_insert_rowid()

-- name: held
SELECT 1 FROM runs WHERE run = ? AND fence = ? AND status = 2

-- name: finish
UPDATE runs SET status = ?, value = ?, ended = ?, updated = ?, worker = NULL, rollback = 0
WHERE run = ? AND fence = ? AND status = 2 AND awaited = 0

-- name: finish_some
UPDATE runs SET status = v.column1, value = v.column2, ended = v.column3, updated = ?,
    worker = NULL, rollback = 0
FROM (VALUES {rows}) v
WHERE run = v.column4 AND fence = v.column5 AND runs.status = 2 AND awaited = 0

-- name: finish_more
UPDATE runs SET status = ?, value = ?, ended = ?, updated = ?, worker = NULL, rollback = ?,
    attempts = ifnull(?, attempts)
WHERE run = ? AND fence = ? AND status = 2 AND awaited = 0

-- name: standing
SELECT status, fence, ifnull(value, (SELECT b.value FROM blobs b WHERE b.run = runs.run AND b.role = 1))
FROM runs WHERE run = ?

-- name: watch
SELECT run, status, ifnull(value, (SELECT b.value FROM blobs b WHERE b.run = runs.run AND b.role = 1)),
    (SELECT m.expires FROM terms m WHERE m.run = runs.run AND runs.fence = 0)
FROM runs WHERE id = ?

-- name: settle
UPDATE runs SET status = ?, value = ?, updated = ?, worker = NULL
WHERE run = ? AND fence = ? AND status = 2

-- name: reschedule
UPDATE runs SET status = ?, due = ?, updated = ?, worker = NULL,
    attempts = ifnull(?, attempts),
    crashes = CASE WHEN ? THEN 0
        WHEN (SELECT j.fence FROM journal j WHERE j.run = runs.run ORDER BY j.seq DESC LIMIT 1) = fence
        THEN 0 ELSE crashes END
WHERE run = ? AND fence = ? AND status = 2
RETURNING target,
    EXISTS (SELECT 1 FROM inbox i WHERE i.run = runs.run AND i.absorbed = 0 AND i.kind = 7)

-- name: set_value
UPDATE runs SET value = ? WHERE run = ?

-- name: park
UPDATE runs SET status = 3, waiting = ?, updated = ?, worker = NULL, crashes = 0
WHERE run = ? AND fence = ? AND status = 2
    AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.run = runs.run AND i.absorbed = 0)
    AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.run = runs.run AND j.seq >= ?)

-- name: park_until
UPDATE runs SET status = 3, due = ?, waiting = ?, updated = ?, worker = NULL, crashes = 0
WHERE run = ? AND fence = ? AND status = 2
    AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.run = runs.run AND i.absorbed = 0)
    AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.run = runs.run AND j.seq >= ?)

-- name: set_phase
UPDATE runs SET phase = ? WHERE run = ?

-- name: wake
UPDATE runs SET status = 1, due = NULL, waiting = '', updated = ? WHERE run = ?

-- name: wake_some
UPDATE runs SET status = 1, due = NULL, waiting = '', updated = ?
WHERE run IN (SELECT value FROM json_each(?))

-- name: make_ready
UPDATE runs SET status = 1, due = NULL, waiting = '', ended = NULL, updated = ?, crashes = 0,
    fence = fence + ?, phase = ?
WHERE run = ? AND status = ?
RETURNING target

-- name: stuck
SELECT run, target FROM runs WHERE status = 6

-- name: try_stuck
UPDATE runs SET status = 1, updated = ? WHERE run = ? AND status = 6

-- name: where_held
SELECT status, worker, fence, target FROM runs WHERE run = ?

-- name: address
SELECT r.run, r.status, r.worker, r.fence, t.kind, r.parent, r.parent_path, r.id, r.phase, r.rollback
FROM runs r CROSS JOIN targets t ON t.target = r.target WHERE r.id = ?

-- name: status_of
SELECT run, status FROM runs WHERE id = ?

-- name: all_stand
SELECT id, run, status, worker, target FROM runs WHERE id IN (SELECT value FROM json_each(?))

-- name: cancel_unclaimed
UPDATE runs SET status = 12, value = ?, ended = ?, updated = ?, due = NULL, waiting = ''
WHERE run = ? AND fence = 0 AND status IN (0, 1, 4)

-- name: unended_jobs
SELECT r.run FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE r.parent = ? AND t.kind = 2 AND r.status < 10

-- name: promote
UPDATE runs SET status = 1, due = NULL, waiting = '', updated = ?
WHERE run IN (SELECT run FROM runs WHERE due IS NOT NULL AND due <= ? ORDER BY due LIMIT 1000)
    AND status IN (0, 3)
RETURNING target

-- name: next_due
SELECT min(due) FROM runs WHERE due IS NOT NULL

-- name: any_alone
SELECT 1 FROM runs WHERE status = 1 AND crashes >= 2 LIMIT 1

-- name: claim_seek
SELECT * FROM (SELECT priority, run FROM runs
    WHERE status = 1 AND crashes < 2 AND lane = 0
        AND target = (SELECT target FROM targets WHERE target = ? AND open = 1)
    ORDER BY priority DESC, run LIMIT ?)

-- name: claim_chosen
SELECT priority, run FROM (
    SELECT priority, run AS age, run FROM ({seeks})
    UNION ALL
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
    FROM json_each(?))
ORDER BY priority DESC, age LIMIT ?

-- name: claim_seek_alone
SELECT * FROM (SELECT priority, run FROM runs
    WHERE status = 1 AND crashes >= 2 AND target = ?
    ORDER BY priority DESC, run LIMIT ?)

-- name: claim
UPDATE runs SET status = 2, fence = fence + 1, worker = ?, started = ifnull(started, ?), updated = ?
WHERE run IN (SELECT run FROM ({seeks}) ORDER BY priority DESC, run LIMIT ?)
RETURNING run, id, target, fence, priority, nonce, created, scheduled, deadline, parent, args, options

-- name: claimed_before
SELECT run, attempts, crashes, phase, generation, parent_id, parent_path,
    ifnull(value, (SELECT b.value FROM blobs b WHERE b.run = runs.run AND b.role = 1))
FROM runs WHERE run IN (SELECT value FROM json_each(?))

-- name: blob
SELECT value FROM blobs WHERE run = ? AND role = ?

-- name: parent_of
SELECT status, fence, parent, awaited FROM runs WHERE run = ?
