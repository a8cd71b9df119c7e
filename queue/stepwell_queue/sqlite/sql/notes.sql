-- name: said_before
SELECT r.generation, ifnull(s.generation, -1), ifnull(s.code, -1)
FROM runs r LEFT JOIN said s ON s.run = r.run WHERE r.run = ?

-- name: note_code
INSERT INTO said (run, generation, code, fence, number, items, bytes) VALUES (?, ?, ?, 0, 0, 0, 0)
ON CONFLICT (run) DO UPDATE SET generation = excluded.generation, code = excluded.code

-- name: put_value
INSERT INTO run_values (run, name, value, at) VALUES (?, ?, ?, ?)
ON CONFLICT (run, name) DO UPDATE SET value = excluded.value, at = excluded.at

-- name: put_answer
INSERT INTO answers (run, uid, refused, value, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run, uid) DO NOTHING

-- name: note_emit
INSERT INTO said (run, generation, code, fence, number, items, bytes)
SELECT run, 0, -1, fence, ?, 0, 0 FROM runs WHERE run = ? AND fence = ? AND status = 2
ON CONFLICT (run) DO UPDATE SET fence = excluded.fence, number = excluded.number
WHERE excluded.fence > fence OR excluded.number > number
RETURNING 1

-- name: emitted
SELECT 1 FROM said WHERE run = ? AND fence = ? AND number >= ?

-- name: whose_streams
SELECT iif(t.kind = 2 AND r.parent IS NOT NULL, r.parent, r.run)
FROM runs r CROSS JOIN targets t ON t.target = r.target WHERE r.run = ?

-- name: count_items
INSERT INTO said (run, generation, code, fence, number, items, bytes) VALUES (?, 0, -1, 0, 0, ?, ?)
ON CONFLICT (run) DO UPDATE SET items = items + excluded.items, bytes = bytes + excluded.bytes
RETURNING items, bytes

-- name: items_of
SELECT items, bytes FROM said WHERE run = ?

-- name: last_offset
SELECT ifnull(max("offset"), 0) FROM stream_items WHERE run = ? AND stream = ?

-- name: add_item
INSERT INTO stream_items (run, stream, "offset", value, at, path, attempt) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: asked_already
SELECT kind, name, value FROM inbox WHERE run = ? AND uid = ?

-- name: answered_already
SELECT 1 FROM answers WHERE run = ? AND uid = ?

-- name: state_of
SELECT run, status, generation FROM runs WHERE id = ?

-- name: values_of
SELECT name, value, at FROM run_values WHERE run = ? AND name = ifnull(?, name) ORDER BY name

-- name: answer_to
SELECT refused, value, at FROM answers WHERE run = ? AND uid = ?

-- name: stream_page
SELECT "offset", value, at, path, attempt FROM stream_items
WHERE run = ? AND stream = ? AND "offset" BETWEEN ? AND (
    SELECT max("offset") FROM (
        SELECT "offset", size, sum(size) OVER (ORDER BY "offset") AS total FROM (
            SELECT "offset", length(value) AS size FROM stream_items
            WHERE run = ? AND stream = ? AND "offset" >= ? ORDER BY "offset" LIMIT ?))
    WHERE total - size < ?)
ORDER BY "offset"

-- name: streams_of
SELECT stream, count(*) FROM stream_items WHERE run = ? GROUP BY stream ORDER BY stream

-- name: reopened_of
SELECT value FROM journal WHERE run = ? AND kind = 10 AND name = 'retry'

-- name: remote_at
SELECT r.parent_path, r.attempts, r.started FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE r.parent = ? AND t.kind = 2 AND r.parent_path IN (SELECT value FROM json_each(?))

-- name: audit_after
SELECT entry, at, action, actor, reason FROM audit WHERE run = ? AND entry > ? ORDER BY entry LIMIT 200
