-- name: kept_since
SELECT ended FROM runs WHERE ended IS NOT NULL AND parent IS NULL
ORDER BY ended DESC, run DESC LIMIT 1 OFFSET ?

-- name: prunable
SELECT run FROM runs r
WHERE ended IS NOT NULL AND ended < ?
    AND (parent IS NULL OR NOT EXISTS (SELECT 1 FROM runs p WHERE p.run = r.parent))
    AND NOT EXISTS (
        WITH RECURSIVE tree (run) AS (
            SELECT r.run UNION SELECT c.run FROM runs c JOIN tree t ON c.parent = t.run
        )
        SELECT 1 FROM tree t JOIN runs x ON x.run = t.run
        WHERE x.status < 10 OR x.run = (SELECT max(run) FROM runs)
    )
ORDER BY ended, run LIMIT ?

-- name: tree
WITH RECURSIVE tree (run) AS (
    SELECT ? UNION SELECT c.run FROM runs c JOIN tree t ON c.parent = t.run
)
SELECT run FROM tree

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

-- name: prune_runs
DELETE FROM runs WHERE run IN (SELECT value FROM json_each(?))
