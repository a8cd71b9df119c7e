-- name: note_failure
INSERT INTO failures (run, number, started, ended, worker, error)
SELECT r.run, ?, r.updated, ?, ifnull((SELECT w.name FROM workers w WHERE w.worker = r.worker), ''), ?
FROM runs r WHERE r.run = ? AND r.fence = ? AND r.status = 2

-- name: note_crash
INSERT INTO failures (run, number, started, ended, worker, error)
SELECT r.run, r.attempts + 1, r.updated, ?,
    ifnull((SELECT w.name FROM workers w WHERE w.worker = r.worker), ''), NULL
FROM runs r CROSS JOIN targets t ON t.target = r.target
WHERE r.run = ? AND r.fence = ? AND r.status = 2 AND t.kind <> 1

-- name: drop_failure
DELETE FROM failures WHERE failure = (
        SELECT failure FROM failures WHERE run = ? ORDER BY failure LIMIT 1 OFFSET ?)
    AND (SELECT count(*) FROM failures WHERE run = ?) > ?

-- name: failures_of
SELECT path, number, started, ended, worker, error IS NULL, ifnull(error, x'') FROM (
    SELECT '' AS path, number, started, ended, worker, error, failure
    FROM failures WHERE run = ?
    UNION ALL
    SELECT r.parent_path, f.number, f.started, f.ended, f.worker, f.error, f.failure
    FROM runs r CROSS JOIN targets t ON t.target = r.target CROSS JOIN failures f ON f.run = r.run
    WHERE r.parent = ? AND t.kind = 2)
ORDER BY ended DESC, failure DESC LIMIT 1000

-- name: report
INSERT INTO reports (run, fence, number, fraction, note, at, lines, bytes)
SELECT run, fence, ?, ?, ?, ?, ?, ? FROM runs WHERE run = ? AND fence = ? AND status = 2
ON CONFLICT (run) DO UPDATE SET fence = excluded.fence, number = excluded.number,
    fraction = ifnull(excluded.fraction, fraction),
    note = iif(excluded.fraction IS NULL, note, excluded.note),
    at = iif(excluded.fraction IS NULL, at, excluded.at),
    lines = lines + excluded.lines, bytes = bytes + excluded.bytes
WHERE excluded.fence > fence OR excluded.number > number
RETURNING lines, bytes

-- name: reported
SELECT 1 FROM reports WHERE run = ? AND fence = ? AND number >= ?

-- name: add_line
INSERT INTO log_lines (run, at, text, fields, path, attempt, bytes) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: first_line_kept
SELECT line FROM (
    SELECT line, sum(bytes) OVER later AS size, count(*) OVER later AS count
    FROM log_lines WHERE run = ? WINDOW later AS (ORDER BY line DESC))
WHERE size <= ? AND count <= ? ORDER BY line LIMIT 1

-- name: drop_lines
DELETE FROM log_lines WHERE run = ? AND line < ?

-- name: count_lines
UPDATE reports SET (lines, bytes) = (
    SELECT count(*), ifnull(sum(bytes), 0) FROM log_lines l WHERE l.run = reports.run)
WHERE run = ?

-- name: run_numbered
SELECT run FROM runs WHERE id = ?

-- name: progress_of
SELECT fraction, note, at FROM reports
WHERE fraction IS NOT NULL AND run IN (
    SELECT ? UNION ALL
    SELECT r.run FROM runs r CROSS JOIN targets t ON t.target = r.target
    WHERE r.parent = ? AND t.kind = 2)
ORDER BY at DESC LIMIT 1

-- name: log_of
SELECT line, at, text, fields, path, attempt FROM log_lines
WHERE line > ? AND run IN (
    SELECT ? UNION ALL
    SELECT r.run FROM runs r CROSS JOIN targets t ON t.target = r.target
    WHERE r.parent = ? AND t.kind = 2)
ORDER BY line LIMIT ?
