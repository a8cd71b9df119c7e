-- name: insert_copy
INSERT INTO runs (id, target, status, fence, priority, phase, rollback, attempts, crashes, nonce, generation,
    created, updated, started, ended, scheduled, deadline, parent, parent_id, parent_path, waiting, digest, options,
    args, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_record
INSERT INTO journal (run, seq, kind, path, name, value, at, attempt, started, digest, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
