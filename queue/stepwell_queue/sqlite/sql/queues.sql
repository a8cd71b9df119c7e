-- name: gates
SELECT queue, paused, until, settings, ageing_since, aged FROM queues

-- name: closed_targets
SELECT target, queue, special, paused FROM targets WHERE open = 0

-- name: queue_row
SELECT paused, settings, declared, ageing_since FROM queues WHERE queue = ?

-- name: heard_of_queue
SELECT heard FROM queues WHERE queue = ?

-- name: note_heard
INSERT INTO queues (queue, heard) VALUES (?, ?) ON CONFLICT (queue) DO UPDATE SET heard = excluded.heard

-- name: put_queue
INSERT INTO queues (queue, settings, gated, declared, ageing_since) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (queue) DO UPDATE SET settings = excluded.settings, gated = excluded.gated,
    declared = excluded.declared, ageing_since = excluded.ageing_since

-- name: pause_queue
INSERT INTO queues (queue, paused, until, reason) VALUES (?, 1, ?, ?)
ON CONFLICT (queue) DO UPDATE SET paused = 1, until = excluded.until, reason = excluded.reason

-- name: resume_queue
UPDATE queues SET paused = 0, until = NULL, reason = '' WHERE queue = ? AND paused = 1

-- name: open_targets
UPDATE targets SET open = (special = 0 AND paused = 0 AND ?) WHERE queue = ?

-- name: close_target
UPDATE targets SET special = 1, open = 0 WHERE target = ? AND special = 0

-- name: drop_ageing
UPDATE runs SET priority = (SELECT t.asked FROM terms t WHERE t.run = runs.run)
WHERE run IN (SELECT m.run FROM terms m WHERE m.run BETWEEN ? AND ? AND m.asked IS NOT NULL)
    AND +target IN (SELECT target FROM targets WHERE queue = ?)

-- name: forget_asked
UPDATE terms SET asked = NULL WHERE run BETWEEN ? AND ? AND asked IS NOT NULL
    AND (SELECT t.queue FROM runs r JOIN targets t ON t.target = r.target WHERE r.run = terms.run) = ?

-- name: next_terms
SELECT count(*), min(run) FROM (SELECT run FROM terms WHERE run <= ? ORDER BY run DESC LIMIT ?)

-- name: last_terms
SELECT max(run) FROM terms

-- name: put_aged
UPDATE queues SET aged = ? WHERE queue = ?

-- name: aged_queues
SELECT queue, aged FROM queues WHERE aged IS NOT NULL

-- name: unclaimed_in_queue
SELECT r.run FROM targets t CROSS JOIN runs r ON r.target = t.target
WHERE t.queue = ? AND r.status = 1 AND r.fence = 0 AND r.crashes < 2 AND r.lane = 0
    AND r.parent IS NULL
UNION ALL
SELECT r.run FROM targets t CROSS JOIN runs r ON r.target = t.target
WHERE t.queue = ? AND r.status = 1 AND r.fence = 0 AND r.crashes < 2 AND r.lane <> 0
    AND r.parent IS NULL
UNION ALL
SELECT r.run FROM runs r WHERE r.due IS NOT NULL
    AND r.target IN (SELECT target FROM targets WHERE queue = ?)
    AND r.status = 0 AND r.fence = 0 AND r.parent IS NULL
UNION ALL
SELECT r.run FROM (SELECT DISTINCT run FROM dependencies) d CROSS JOIN runs r ON r.run = d.run
    CROSS JOIN targets t ON t.target = r.target
WHERE t.queue = ?
LIMIT ?

-- name: running_in_queue
SELECT lane, count(*) FROM runs
WHERE worker IS NOT NULL AND target IN (SELECT target FROM targets WHERE queue = ?) GROUP BY lane

-- name: next_priority
SELECT max(priority) FROM (
    SELECT * FROM (SELECT priority FROM runs
        WHERE status = 1 AND crashes < 2 AND lane = 0 AND target = ? AND priority < ?
        ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT priority FROM runs
        WHERE status = 1 AND crashes < 2 AND lane <> 0 AND target = ? AND priority < ?
        ORDER BY priority DESC LIMIT 1))

-- name: ready_without_key
SELECT run FROM runs
WHERE status = 1 AND crashes < 2 AND lane = 0 AND target = ? AND priority = ?
ORDER BY run LIMIT ?

-- name: ready_lanes
WITH RECURSIVE found (lane) AS (
    SELECT min(lane) FROM runs WHERE status = 1 AND crashes < 2 AND lane <> 0
        AND target = ? AND priority = ? AND lane > ?
    UNION ALL
    SELECT (SELECT min(r.lane) FROM runs r WHERE r.status = 1 AND r.crashes < 2 AND r.lane <> 0
        AND r.target = ? AND r.priority = ? AND r.lane > found.lane)
    FROM found WHERE found.lane IS NOT NULL AND found.lane < ?
    LIMIT ?
)
SELECT lane FROM found WHERE lane IS NOT NULL AND lane <= ?
    AND lane NOT IN (SELECT value FROM json_each(?))

-- name: ready_in_lanes
SELECT l.value, r.run FROM json_each(?) l CROSS JOIN runs r
WHERE r.run IN (SELECT o.run FROM runs o WHERE o.status = 1 AND o.crashes < 2 AND o.lane <> 0
    AND o.target = ? AND o.priority = ? AND o.lane = l.value ORDER BY o.run LIMIT ?)
ORDER BY r.run

-- name: lane_of
SELECT lane FROM runs WHERE run = ?

-- name: claimed_at
SELECT updated FROM runs WHERE run = ? AND status = 2

-- name: any_keyed
SELECT * FROM (SELECT 1 FROM runs
    WHERE status = 1 AND crashes < 2 AND lane <> 0 AND target = ? LIMIT 1)
UNION ALL
SELECT * FROM (SELECT 1 FROM runs
    WHERE status = 1 AND crashes >= 2 AND lane <> 0 AND target = ? LIMIT 1)
LIMIT 1

-- name: held_of_queue
SELECT count(*) FROM runs
WHERE worker = ? AND target IN (SELECT target FROM targets WHERE queue = ?)

-- name: running_gated
SELECT r.run, t.queue FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE r.worker IS NOT NULL AND t.open = 0

-- name: bucket
SELECT tokens, at FROM buckets WHERE queue = ? AND lane = ?

-- name: empty_buckets
SELECT lane, tokens, at FROM buckets WHERE full > ? AND +queue = ? AND lane <> 0

-- name: buckets_of_keys
SELECT lane, tokens, at FROM buckets WHERE queue = ? AND lane IN (SELECT value FROM json_each(?))

-- name: put_bucket
INSERT INTO buckets (queue, lane, tokens, at, full, since) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, lane) DO UPDATE SET tokens = excluded.tokens, at = excluded.at,
    full = excluded.full,
    since = CASE WHEN buckets.full <= excluded.at THEN excluded.since ELSE buckets.since END

-- name: bucket_was_full
SELECT since FROM buckets WHERE queue = ? AND lane = ? AND full > ?

-- name: drop_full_buckets
DELETE FROM buckets WHERE bucket IN (
    SELECT bucket FROM buckets WHERE full <= ? ORDER BY full LIMIT 100)

-- name: drop_buckets
DELETE FROM buckets WHERE queue = ?

-- name: list_queues
SELECT q.queue, s.settings, ifnull(s.paused, 0), s.until, ifnull(s.reason, ''),
    (SELECT count(*) FROM runs r WHERE r.worker IS NOT NULL
        AND r.target IN (SELECT target FROM targets t WHERE t.queue = q.queue)),
    (SELECT count(*) FROM targets t CROSS JOIN runs r ON r.target = t.target
        WHERE t.queue = q.queue AND r.status = 1 AND r.crashes < 2 AND r.lane = 0)
    + (SELECT count(*) FROM targets t CROSS JOIN runs r ON r.target = t.target
        WHERE t.queue = q.queue AND r.status = 1 AND r.crashes < 2 AND r.lane <> 0)
    + (SELECT count(*) FROM targets t CROSS JOIN runs r ON r.target = t.target
        WHERE t.queue = q.queue AND r.status = 1 AND r.crashes >= 2)
FROM (SELECT queue FROM queues UNION SELECT queue FROM targets) q
LEFT JOIN queues s ON s.queue = q.queue
WHERE q.queue = ifnull(?, q.queue)
ORDER BY q.queue

-- name: count_runs
SELECT t.queue, t.kind, r.status, count(*), min(r.updated) FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE t.queue = ifnull(?, t.queue) GROUP BY t.queue, t.kind, r.status

-- name: count_ends
SELECT t.queue, count(*), sum(r.status = 11) FROM targets t CROSS JOIN runs r
WHERE t.queue = ifnull(?, t.queue) AND r.target = t.target AND r.ended IS NOT NULL AND r.ended > ?
GROUP BY t.queue

-- name: find_running
SELECT id FROM runs
WHERE worker IS NOT NULL AND target IN (SELECT target FROM targets WHERE queue = ?) LIMIT ?

-- name: list_settings
SELECT queue, settings FROM queues ORDER BY queue
