-- name: kept_since
SELECT r.ended FROM targets t CROSS JOIN runs r
WHERE t.queue = ifnull(?, t.queue) AND t.queue NOT IN (SELECT value FROM json_each(?))
    AND t.name = ifnull(?, t.name) AND t.name NOT IN (SELECT value FROM json_each(?))
    AND r.target = t.target AND r.ended IS NOT NULL AND r.parent IS NULL {statuses}
ORDER BY r.ended DESC LIMIT 1 OFFSET ?

-- name: must_stay
x.status < 10 OR x.run = (SELECT max(run) FROM runs)
    OR EXISTS (SELECT 1 FROM terms m WHERE m.run = x.run AND m.unique_until > ?)
    OR EXISTS (SELECT 1 FROM dependencies d WHERE d.needs = x.run)

-- name: prunable
SELECT r.run, r.id, r.ended,
    (WITH RECURSIVE tree (run) AS (
        SELECT r.run UNION SELECT c.run FROM runs c JOIN tree t ON c.parent = t.run
    ) SELECT json_array(count(*), sum(x.fence)) FROM tree t JOIN runs x ON x.run = t.run)
FROM targets t CROSS JOIN runs r
WHERE t.queue = ifnull(?, t.queue) AND t.queue NOT IN (SELECT value FROM json_each(?))
    AND t.name = ifnull(?, t.name) AND t.name NOT IN (SELECT value FROM json_each(?))
    AND r.run IN (
        SELECT o.run FROM runs o
        WHERE o.ended IS NOT NULL AND o.target = t.target AND o.ended >= ? AND o.ended < ? {statuses}
            AND (o.parent IS NULL OR NOT EXISTS (SELECT 1 FROM runs p WHERE p.run = o.parent))
            AND NOT EXISTS (
                WITH RECURSIVE tree (run) AS (
                    SELECT o.run UNION SELECT c.run FROM runs c JOIN tree t ON c.parent = t.run
                )
                SELECT 1 FROM tree t JOIN runs x ON x.run = t.run WHERE {must_stay}
            )
        ORDER BY o.ended LIMIT ?)
ORDER BY r.ended, r.run LIMIT ?

-- name: tree
WITH RECURSIVE tree (run) AS (
    SELECT ? UNION SELECT c.run FROM runs c JOIN tree t ON c.parent = t.run
)
SELECT x.run, x.fence, {must_stay} FROM tree t JOIN runs x ON x.run = t.run

-- name: any_of_trees
SELECT e.value FROM json_each(?) e WHERE EXISTS (SELECT 1 FROM runs r WHERE r.run = e.value)

-- name: put_kept_name
INSERT INTO kept_names (name, rule) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET rule = excluded.rule WHERE rule <> excluded.rule

-- name: drop_kept_name
DELETE FROM kept_names WHERE name = ?

-- name: list_kept
SELECT rule FROM kept_names ORDER BY name

-- name: lease_upkeep
INSERT INTO upkeep (upkeep, holder, until) VALUES (1, ?, ?)
ON CONFLICT (upkeep) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE holder = excluded.holder OR until <= ?

-- name: prune_journal
DELETE FROM journal WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_open_ops
DELETE FROM open_ops WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_inbox
DELETE FROM inbox WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_blobs
DELETE FROM blobs WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_audit
DELETE FROM audit WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_terms
DELETE FROM terms WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_failures
DELETE FROM failures WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_reports
DELETE FROM reports WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_log_lines
DELETE FROM log_lines WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_said
DELETE FROM said WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_run_values
DELETE FROM run_values WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_stream_items
DELETE FROM stream_items WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_answers
DELETE FROM answers WHERE run IN (SELECT value FROM json_each(?))

-- name: prune_runs
DELETE FROM runs WHERE run IN (SELECT value FROM json_each(?))
