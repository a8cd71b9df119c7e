-- name: info_columns
r.run, r.id, t.kind, t.name, t.version, t.queue, r.status, r.phase, r.rollback,
ifnull((SELECT m.asked FROM terms m WHERE m.run = r.run), r.priority),
r.attempts, r.crashes, r.fence, r.nonce, r.created, r.updated, r.started, r.ended, r.due, r.deadline,
r.waiting, r.parent_id, r.parent_path, r.worker,
ifnull(r.args, (SELECT b.value FROM blobs b WHERE b.run = r.run AND b.role = 0)),
ifnull(r.value, (SELECT b.value FROM blobs b WHERE b.run = r.run AND b.role = 1)),
(SELECT m.key FROM terms m WHERE m.run = r.run),
r.generation, r.scheduled, r.digest, r.options

-- name: info
SELECT {columns} FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE id = ?

-- name: infos
SELECT {columns} FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE run IN (SELECT value FROM json_each(?))

-- name: children
SELECT {columns} FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE parent = ? ORDER BY run

-- name: listing
SELECT {columns} FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE {conditions} ORDER BY run DESC LIMIT ?

-- name: journal_of
SELECT seq, kind, path, name, value, at, attempt, started, digest
FROM journal WHERE run = ? ORDER BY seq

-- name: ops_of
SELECT path, kind, name, due, attempt, value FROM open_ops WHERE run = ? ORDER BY op

-- name: audit_of
SELECT at, action, actor, reason FROM audit WHERE run = ? ORDER BY entry

-- name: all_workers
SELECT worker, name, host, pid, started, queues, serves, token, boot, until,
    (SELECT count(*) FROM runs r WHERE r.worker = w.worker), key, state
FROM workers w ORDER BY worker

-- name: all_held
SELECT r.worker, t.name, count(*)
FROM runs r JOIN targets t ON t.target = r.target
WHERE r.worker IS NOT NULL GROUP BY r.worker, t.name

-- name: told_to
SELECT i.id, i.run, i.kind, i.uid, i.name, i.path, i.status, i.value, i.at
FROM inbox i JOIN runs r ON r.run = i.run WHERE i.absorbed = 0 AND r.worker = ? ORDER BY i.id

-- name: journal_page
SELECT seq, kind, path, name, value, at, attempt, started, digest FROM journal
WHERE run = ? AND seq BETWEEN ? AND (
    SELECT max(seq) FROM (
        SELECT seq, size, sum(size) OVER (ORDER BY seq) AS total FROM (
            SELECT seq, length(value) AS size FROM journal
            WHERE run = ? AND seq >= ? ORDER BY seq LIMIT ?))
    WHERE total - size < ?)
ORDER BY seq

-- name: journal_after
SELECT 1 FROM journal WHERE run = ? AND seq > ? LIMIT 1

-- name: inbox_page
SELECT id, run, kind, uid, name, path, status, value, at FROM inbox
WHERE run = ? AND absorbed = 0 AND id > ? AND id <= (
    SELECT max(id) FROM (
        SELECT id, size, sum(size) OVER (ORDER BY id) AS total FROM (
            SELECT id, length(value) AS size FROM inbox
            WHERE run = ? AND absorbed = 0 AND id > ? ORDER BY id LIMIT ?))
    WHERE total - size < ?)
ORDER BY id

-- name: inbox_after
SELECT 1 FROM inbox WHERE run = ? AND absorbed = 0 AND id > ? LIMIT 1
