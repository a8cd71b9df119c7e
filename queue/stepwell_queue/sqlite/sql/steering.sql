-- name: terminate
UPDATE runs SET status = 13, value = ?, ended = ?, updated = ?, due = NULL, waiting = '', worker = NULL,
    rollback = 0, awaited = 0, fence = fence + 1
WHERE run = ? AND status < 10

-- name: ends_of
SELECT worker, fence, parent, awaited FROM runs WHERE run = ?

-- name: unended_below
WITH RECURSIVE below (run, status) AS (
    SELECT c.run, c.status FROM runs c WHERE c.parent = ? AND c.parent_path <> '' AND (c.status < 10 OR c.status = 13)
    UNION
    SELECT c.run, c.status FROM below b JOIN runs c ON c.parent = b.run
    WHERE c.parent_path <> '' AND (c.status < 10 OR c.status = 13)
)
SELECT run FROM below WHERE status < 10 LIMIT ?

-- name: pause_run
UPDATE runs SET status = 4, due = NULL, updated = ?
WHERE run = ? AND status IN (0, 1, 3)

-- name: note_pause
INSERT INTO pauses (run, status, due) SELECT run, status, due FROM runs WHERE run = ?
ON CONFLICT (run) DO UPDATE SET status = excluded.status, due = excluded.due

-- name: pause_of
SELECT status, due FROM pauses WHERE run = ?

-- name: drop_pauses
DELETE FROM pauses WHERE run IN (SELECT value FROM json_each(?))

-- name: drop_pause
DELETE FROM pauses WHERE run = ?

-- name: forget_pause
DELETE FROM inbox WHERE run = ? AND absorbed = 0 AND kind = 7

-- name: pause_waits
SELECT 1 FROM inbox WHERE run = ? AND absorbed = 0 AND kind = 7

-- name: resume_run
UPDATE runs SET status = ?, due = ?, waiting = CASE WHEN ? THEN '' ELSE waiting END, updated = ?
WHERE run = ? AND status = 4
RETURNING target

-- name: scheduled_for
SELECT scheduled FROM runs WHERE run = ?

-- name: any_message
SELECT 1 FROM inbox WHERE run = ? AND absorbed = 0 LIMIT 1

-- name: prune_pauses
DELETE FROM pauses WHERE run IN (SELECT value FROM json_each(?))

-- name: put_name
INSERT INTO paused_names (name, paused, at, actor, reason, heard) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, at = excluded.at, actor = excluded.actor,
    reason = excluded.reason, heard = excluded.heard

-- name: find_name
SELECT paused, at, actor, reason, heard FROM paused_names WHERE name = ?

-- name: close_name
UPDATE targets SET paused = 1, open = 0 WHERE name = ? AND kind <> 2

-- name: open_name
UPDATE targets SET paused = 0, open = (special = 0 AND NOT EXISTS (
    SELECT 1 FROM queues q WHERE q.queue = targets.queue AND (q.paused = 1 OR q.gated = 1)))
WHERE name = ? AND kind <> 2

-- name: paused_names
SELECT name, at, actor, reason FROM paused_names WHERE paused = 1 ORDER BY name

-- name: journal_length
SELECT ifnull(max(seq) + 1, 0) FROM journal WHERE run = ?

-- name: undone_since
SELECT f.digest FROM journal f WHERE f.run = ? AND f.kind = 9 AND EXISTS (
    SELECT 1 FROM journal u WHERE u.run = f.run AND u.seq > f.seq AND u.path LIKE '~%')
ORDER BY f.seq LIMIT 1

-- name: fork_journal
INSERT INTO journal (run, seq, kind, path, name, value, at, attempt, started, digest, fence)
SELECT ?, seq, kind, path, name, value, at, attempt, started, digest, ?
FROM journal WHERE run = ? AND seq < ? ORDER BY seq

-- name: fork_children
SELECT kind, path, name, value FROM journal
WHERE run = ? AND seq < ? AND (kind = 7 OR (kind BETWEEN 4 AND 6 AND path = '')) ORDER BY seq

-- name: fork_lane
UPDATE runs SET lane = (SELECT s.lane FROM runs s WHERE s.run = ?) WHERE run = ?

-- name: fork_key
INSERT INTO terms (run, key) SELECT ?, key FROM terms WHERE run = ? AND key IS NOT NULL
