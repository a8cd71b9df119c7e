-- name: insert_copy
INSERT INTO runs (id, target, status, fence, priority, phase, rollback, attempts, crashes, nonce, generation,
    created, updated, started, ended, scheduled, deadline, parent, parent_id, parent_path, waiting, digest, options,
    args, value, lane)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_record
INSERT INTO journal (run, seq, kind, path, name, value, at, attempt, started, digest, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_end
INSERT INTO inbox (run, kind, uid, name, path, status, value, at, absorbed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, CASE WHEN ? <> ''
    THEN NOT EXISTS (SELECT 1 FROM open_ops WHERE run = ? AND path = ? AND value = CAST(? AS BLOB))
    ELSE EXISTS (SELECT 1 FROM journal WHERE run = ? AND path = '' AND name = ? AND kind IN (4, 5, 6)) END)
ON CONFLICT (run, uid) DO NOTHING

-- name: copy_absorbed
INSERT INTO inbox (run, kind, uid, name, path, status, value, at, absorbed) VALUES (?, ?, ?, ?, '', 0, ?, ?, 1)
ON CONFLICT (run, uid) DO NOTHING

-- name: copy_failure
INSERT INTO failures (run, number, started, ended, worker, error) VALUES (?, ?, ?, ?, ?, ?)

-- name: copy_said
INSERT INTO said (run, generation, code, fence, number, items, bytes) VALUES (?, ?, ?, 0, 0, ?, ?)

-- name: copy_pause
INSERT INTO pauses (run, status, due) VALUES (?, ?, ?)

-- name: answers_of
SELECT uid, refused, value, at FROM answers WHERE run = ? AND uid > ? ORDER BY uid LIMIT 100

-- name: aside_of
SELECT iif(r.status = 4, ifnull(p.status, 1), NULL), p.due, s.generation, s.code
FROM runs r LEFT JOIN pauses p ON p.run = r.run LEFT JOIN said s ON s.run = r.run WHERE r.id = ?
