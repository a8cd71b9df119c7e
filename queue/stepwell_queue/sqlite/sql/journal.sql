-- name: append
INSERT INTO journal (run, seq, kind, path, name, value, at, attempt, started, digest, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    (SELECT fence FROM runs WHERE run = ? AND fence = ? AND status = 2))

-- name: append_some
INSERT INTO journal (run, seq, kind, path, name, value, at, attempt, started, digest, fence)
VALUES {rows}

-- name: record_at
SELECT seq, kind, path, name, value, at, attempt, started, digest, fence
FROM journal WHERE run = ? AND seq = ?

-- name: record_since
SELECT 1 FROM journal WHERE run = ? AND seq >= ? AND fence = ? LIMIT 1

-- name: journals
SELECT run, seq, kind, path, name, value, at, attempt, started, digest
FROM journal WHERE run IN (SELECT value FROM json_each(?)) ORDER BY run, seq

-- name: all_open_ops
SELECT run, path, kind, name, due, attempt, value
FROM open_ops WHERE run IN (SELECT value FROM json_each(?)) ORDER BY run, op

-- name: close_op
DELETE FROM open_ops WHERE run = ? AND path = ?

-- name: close_all_ops
DELETE FROM open_ops WHERE run = ?

-- name: open_op
INSERT INTO open_ops (run, path, kind, name, due, attempt, value) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, path) DO UPDATE SET kind = excluded.kind, name = excluded.name,
    due = excluded.due, attempt = excluded.attempt, value = excluded.value
