-- name: holder_of_its_key
SELECT
    (SELECT o.id FROM terms mine
        JOIN terms other ON other.unique_key = mine.unique_key AND other.run <> mine.run
            AND other.unique_hold >= 0
        JOIN runs o ON o.run = other.run
        JOIN targets t ON t.target = o.target
        JOIN runs r ON r.run = mine.run
        JOIN targets u ON u.target = r.target AND (u.kind, u.name) = (t.kind, t.name)
    WHERE mine.run = ? AND mine.unique_hold IN (0, -1) AND (
        (o.status < 10 AND (other.unique_hold = 0 OR (other.unique_hold = 1 AND o.fence = 0)))
        OR (other.unique_hold = 2 AND other.unique_until > ?)))

-- name: fresh_budget
UPDATE runs SET attempts = 0, deadline = deadline + ? - ifnull(
    (SELECT max(a.at) FROM audit a WHERE a.run = runs.run AND a.action = 'requeue'), created)
WHERE run = ?

-- name: take_all
UPDATE inbox SET absorbed = 1 WHERE run = ? AND absorbed = 0

-- name: dead_among
SELECT r.run FROM json_each(?) ids CROSS JOIN runs r ON r.id = ids.value
CROSS JOIN targets t ON t.target = r.target
WHERE r.status = 11 AND t.kind = 0 AND r.run < (SELECT max(run) FROM runs)
    AND (r.parent IS NULL OR NOT EXISTS (SELECT 1 FROM runs p WHERE p.run = r.parent))
    AND NOT EXISTS (SELECT 1 FROM terms m WHERE m.run = r.run AND m.unique_until > ?)

-- name: count_existing
SELECT count(*) FROM json_each(?) ids CROSS JOIN runs r ON r.id = ids.value

-- name: when_it_failed
SELECT coalesce(
    (SELECT f.ended FROM failures f WHERE f.run = r.run ORDER BY f.failure DESC LIMIT 1),
    r.ended, 0), r.run
FROM runs r WHERE r.id = ?

-- name: list_dead_letters
SELECT r.run, r.id, t.name, t.version, t.queue, r.ended, r.attempts, r.crashes, r.parent_id,
    EXISTS (SELECT 1 FROM inbox i WHERE i.run = r.parent AND i.uid = r.id AND i.absorbed = 1),
    ifnull(r.value, (SELECT b.value FROM blobs b WHERE b.run = r.run AND b.role = 1))
FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE r.status = 11 AND (r.ended, r.run) < (?, ?) AND t.kind = 0
    AND t.queue = ifnull(?, t.queue) AND t.name = ifnull(?, t.name)
ORDER BY r.ended DESC, r.run DESC LIMIT ?
