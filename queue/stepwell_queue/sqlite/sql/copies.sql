-- name: insert_copy
INSERT INTO runs (id, target, status, fence, priority, phase, rollback, attempts, crashes, nonce, generation,
    created, updated, started, ended, scheduled, deadline, parent, parent_id, parent_path, waiting, digest, options,
    args, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_record
INSERT INTO journal (run, seq, kind, path, name, value, at, attempt, started, digest, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_end
INSERT INTO inbox (run, kind, uid, name, path, status, value, at, absorbed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, CASE WHEN ? <> ''
    THEN NOT EXISTS (SELECT 1 FROM open_ops WHERE run = ? AND path = ? AND value = CAST(? AS BLOB))
    ELSE EXISTS (SELECT 1 FROM journal WHERE run = ? AND path = '' AND name = ? AND kind IN (4, 5, 6)) END)
ON CONFLICT (run, uid) DO NOTHING
