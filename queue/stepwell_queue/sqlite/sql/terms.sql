-- name: insert_with_terms
INSERT INTO runs (id, target, priority, nonce, created, updated, digest, options, args,
    status, due, scheduled, deadline, lane, waiting, value, ended, parent, parent_path, parent_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT p.id FROM runs p WHERE p.run = ?))
ON CONFLICT (id) DO NOTHING

-- name: insert_some_with_terms
INSERT INTO runs (id, target, priority, nonce, created, updated, digest, options, args,
    status, due, scheduled, deadline, lane, waiting)
VALUES {rows}

-- name: insert_terms
INSERT INTO terms (run, key, asked, expires, unique_key, unique_hold, unique_until)
VALUES {rows}

-- name: put_terms
INSERT INTO terms (run, key, asked, expires, unique_key, unique_hold, unique_until)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET key = excluded.key, asked = excluded.asked, expires = excluded.expires,
    unique_key = excluded.unique_key, unique_hold = excluded.unique_hold,
    unique_until = excluded.unique_until

-- name: unique_holder
SELECT r.run, r.id, r.status, r.fence, m.unique_hold, r.args IS NULL
FROM terms m CROSS JOIN runs r ON r.run = m.run
WHERE m.unique_key = ? AND m.unique_hold >= 0 AND CASE m.unique_hold
    WHEN 0 THEN r.status < 10 WHEN 1 THEN r.status < 10 AND r.fence = 0 ELSE m.unique_until > ? END
ORDER BY m.run DESC LIMIT 1

-- name: leave_unique
UPDATE terms SET unique_hold = -1 - unique_hold
WHERE unique_key = ? AND unique_hold >= 0 AND NOT (SELECT CASE terms.unique_hold
    WHEN 0 THEN r.status < 10 WHEN 1 THEN r.status < 10 AND r.fence = 0 ELSE terms.unique_until > ? END
    FROM runs r WHERE r.run = terms.run)

-- name: hold_of_keys
SELECT CASE m.unique_hold
    WHEN 0 THEN r.status < 10 WHEN 1 THEN r.status < 10 AND r.fence = 0 ELSE m.unique_until > ? END
FROM json_each(?) k CROSS JOIN terms m ON m.unique_key = k.value AND m.unique_hold >= 0
CROSS JOIN runs r ON r.run = m.run

-- name: leave_keys
UPDATE terms SET unique_hold = -1 - unique_hold
WHERE unique_key IN (SELECT value FROM json_each(?)) AND unique_hold >= 0

-- name: any_replaced
SELECT 1 FROM json_each(?) c CROSS JOIN audit a
WHERE a.action = 'replace' AND a.uid = c.value LIMIT 1

-- name: take_unique_again
UPDATE terms SET unique_hold = -1 - unique_hold WHERE run = ? AND unique_hold < 0

-- name: replace_run
UPDATE runs SET target = ?, priority = ?, updated = ?, digest = ?, options = ?, args = ?, status = ?,
    due = ?, scheduled = ?, deadline = ?, lane = ?, waiting = ifnull(?, waiting)
WHERE run = ?

-- name: drop_blob
DELETE FROM blobs WHERE run = ? AND role = ?

-- name: replaced_by
SELECT r.run, r.id, r.status FROM audit a JOIN runs r ON r.run = a.run
WHERE a.action = 'replace' AND a.uid = ?

-- name: forget_replacements
DELETE FROM audit WHERE run = ? AND action = 'replace' AND entry < (
    SELECT min(entry) FROM (SELECT entry FROM audit WHERE run = ? AND action = 'replace'
        ORDER BY entry DESC LIMIT ?))

-- name: data_version
PRAGMA data_version

-- name: count_ready
SELECT count(*) FROM (
    SELECT * FROM (SELECT 1 FROM targets t CROSS JOIN runs r
        ON r.status = 1 AND r.crashes < 2 AND r.lane = 0 AND r.target = t.target WHERE t.queue = ?)
    UNION ALL
    SELECT * FROM (SELECT 1 FROM targets t CROSS JOIN runs r
        ON r.status = 1 AND r.crashes < 2 AND r.lane <> 0 AND r.target = t.target WHERE t.queue = ?)
    UNION ALL
    SELECT * FROM (SELECT 1 FROM targets t CROSS JOIN runs r
        ON r.status = 1 AND r.crashes >= 2 AND r.target = t.target WHERE t.queue = ?)
    LIMIT ?)

-- name: insert_dependency
INSERT INTO dependencies (run, needs, anyhow, failure) VALUES (?, ?, ?, ?)
ON CONFLICT (run, needs) DO NOTHING

-- name: have_awaited
UPDATE runs SET awaited = 1 WHERE run IN (SELECT value FROM json_each(?)) AND awaited = 0

-- name: any_dependency
SELECT 1 FROM dependencies WHERE run = ? LIMIT 1

-- name: waits_for
WITH RECURSIVE waits (run) AS (
    SELECT value FROM json_each(?)
    UNION SELECT d.needs FROM waits w JOIN dependencies d ON d.run = w.run
)
SELECT 1 FROM waits WHERE run = ? LIMIT 1

-- name: dependents
SELECT run, anyhow, failure FROM dependencies WHERE needs = ? AND run > 0 ORDER BY dependency LIMIT ?

-- name: put_untold_end
-- a dependency of run 0: an end that not all have been told yet who wait for it; `anyhow`: how it ended
INSERT INTO dependencies (run, needs, anyhow, failure) VALUES (0, ?, ?, x'')
ON CONFLICT (run, needs) DO UPDATE SET anyhow = excluded.anyhow

-- name: untold_ends
SELECT needs, anyhow FROM dependencies WHERE run = 0 LIMIT 1

-- name: end_is_untold
SELECT 1 FROM dependencies WHERE run = 0 AND needs = ?

-- name: drop_untold_end
DELETE FROM dependencies WHERE run = 0 AND needs = ?

-- name: drop_some_dependencies
DELETE FROM dependencies WHERE needs = ? AND run IN (SELECT value FROM json_each(?))

-- name: drop_dependencies_of
DELETE FROM dependencies WHERE run IN (SELECT value FROM json_each(?))

-- name: which_are_awaited
SELECT value FROM json_each(?) f WHERE EXISTS (SELECT 1 FROM dependencies d WHERE d.needs = f.value)

-- name: drop_dependencies
DELETE FROM dependencies WHERE run = ?

-- name: let_some_start
UPDATE runs SET status = CASE WHEN scheduled > ? THEN 0 ELSE 1 END,
    due = CASE WHEN scheduled > ? THEN scheduled END, waiting = '', updated = ?
WHERE run IN (SELECT value FROM json_each(?)) AND status = 0 AND fence = 0 AND due IS NULL
    AND NOT EXISTS (SELECT 1 FROM dependencies d WHERE d.run = runs.run)
RETURNING target, due

-- name: fail_waiting
UPDATE runs SET status = 11, value = ?, ended = ?, updated = ?, waiting = ''
WHERE run = ? AND status IN (0, 4) AND fence = 0 AND due IS NULL

-- name: fail_some_waiting
UPDATE runs SET status = 11, value = (SELECT CASE WHEN length(d.failure) <= ? THEN d.failure END
        FROM dependencies d WHERE d.run = runs.run AND d.needs = ?),
    ended = ?, updated = ?, waiting = ''
WHERE run IN (SELECT value FROM json_each(?)) AND status IN (0, 4) AND fence = 0 AND due IS NULL
RETURNING run

-- name: finish_awaited
UPDATE runs SET status = ?, value = ?, ended = ?, updated = ?, worker = NULL, rollback = ?,
    attempts = ifnull(?, attempts), awaited = 0
WHERE run = ? AND fence = ? AND status = 2 AND awaited = 1

-- name: expired
SELECT m.run, r.parent, r.status, r.fence FROM terms m CROSS JOIN runs r ON r.run = m.run
WHERE m.expires IS NOT NULL AND m.expires <= ? ORDER BY m.expires LIMIT ?

-- name: expire
UPDATE runs SET status = 14, value = x'', ended = ?, updated = ?, due = NULL, waiting = ''
WHERE run = ?

-- name: expires_no_more
UPDATE terms SET expires = NULL
WHERE run IN (SELECT value FROM json_each(?)) AND expires IS NOT NULL

-- name: any_expired
SELECT 1 FROM terms WHERE expires IS NOT NULL AND expires <= ? LIMIT 1

-- name: next_expiry
SELECT min(expires) FROM terms WHERE expires IS NOT NULL
