-- name: continue_run
UPDATE runs SET status = 1, args = ?, generation = generation + 1, scheduled = ?, due = NULL, waiting = '',
    phase = 0, attempts = 0, crashes = 0, updated = ?, worker = NULL, value = x''
WHERE run = ? AND fence = ? AND status = 2
RETURNING target,
    EXISTS (SELECT 1 FROM inbox i WHERE i.run = runs.run AND i.absorbed = 0 AND i.kind = 7)

-- name: drop_journal
DELETE FROM journal WHERE run = ?

-- name: put_back
UPDATE inbox SET absorbed = 0 WHERE id IN (
    SELECT id FROM inbox WHERE run = ? AND kind = ? AND name = ? AND absorbed = 1 ORDER BY id DESC LIMIT ?)

-- name: forget_absorbed
DELETE FROM inbox WHERE run = ? AND absorbed = 1 AND id < (
    SELECT min(id) FROM (SELECT id FROM inbox WHERE run = ? AND absorbed = 1 ORDER BY id DESC LIMIT 1000))
