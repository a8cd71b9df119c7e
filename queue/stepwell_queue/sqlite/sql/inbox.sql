-- name: tell
INSERT INTO inbox (run, kind, uid, name, path, status, value, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, uid) DO NOTHING

-- name: tell_some
INSERT INTO inbox (run, kind, uid, name, path, status, value, at) VALUES {rows}
ON CONFLICT (run, uid) DO NOTHING

-- name: told_already
SELECT absorbed FROM inbox WHERE run = ? AND uid = ?

-- name: forget
DELETE FROM inbox WHERE run = ? AND uid = ? AND absorbed = 0

-- name: absorb
UPDATE inbox SET absorbed = 1 WHERE id = ? AND run = ?

-- name: any_waiting
SELECT 1 FROM inbox WHERE absorbed = 0 LIMIT 1

-- name: cancel_waiting
SELECT 1 FROM inbox WHERE run = ? AND absorbed = 0 AND kind = 1 LIMIT 1

-- name: end_waits
SELECT 1 FROM inbox WHERE run = ? AND absorbed = 0 AND kind = 2 AND name = ? AND path = ? LIMIT 1

-- name: inbox
SELECT id, run, kind, uid, name, path, status, value, at
FROM inbox WHERE run = ? AND absorbed = 0 ORDER BY id

-- name: last_absorbed
SELECT id, run, kind, uid, name, path, status, value, at
FROM inbox WHERE run = ? AND absorbed = 1 ORDER BY id DESC LIMIT 1

-- name: inboxes
SELECT id, run, kind, uid, name, path, status, value, at
FROM inbox WHERE absorbed = 0 AND run IN (SELECT value FROM json_each(?)) ORDER BY id

-- name: audit
INSERT INTO audit (run, uid, at, action, actor, reason) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run, uid) DO NOTHING

-- name: child_of
SELECT c.id, ifnull(c.parent_path, '') FROM runs c JOIN runs p ON p.run = c.parent
WHERE c.run = ? AND p.run = ? AND p.status < 10

-- name: audited
SELECT 1 FROM audit WHERE run = ? AND uid = ?
