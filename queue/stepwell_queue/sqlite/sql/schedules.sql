-- name: find_schedule
SELECT schedule, digest, overlap, source, next, paused FROM schedules WHERE id = ?

-- name: insert_schedule
INSERT INTO schedules (id, digest, plan, overlap, source, created, updated, next)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: change_schedule
UPDATE schedules SET digest = ?, plan = ?, overlap = ?, source = ?, updated = ?, next = ?
WHERE schedule = ?

-- name: drop_ticks
DELETE FROM ticks WHERE schedule = (SELECT schedule FROM schedules WHERE id = ?)

-- name: drop_schedule
DELETE FROM schedules WHERE id = ?

-- name: pause_schedule
UPDATE schedules SET paused = 1 WHERE schedule = ?

-- name: resume_schedule
UPDATE schedules SET paused = 0, next = CASE WHEN next IS NULL THEN NULL ELSE ? END
WHERE schedule = ? AND paused = 1

-- name: advance_schedule
UPDATE schedules SET last = ?, next = ?
WHERE schedule = ? AND next = ? AND digest = ? AND paused = 0

-- name: find_tick
SELECT run_id FROM ticks WHERE schedule = ? AND tick = ? AND manual = 0 ORDER BY tick_id DESC LIMIT 1

-- name: insert_tick
INSERT INTO ticks (schedule, tick, at, run, run_id, why, manual) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: find_manual
SELECT 1 FROM ticks WHERE schedule = ? AND run = ?

-- name: unended_of_schedule
SELECT r.id, r.fence FROM ticks t CROSS JOIN runs r ON r.run = t.run
WHERE t.schedule = ? AND r.status < 10

-- name: forget_ticks
DELETE FROM ticks WHERE schedule = ? AND tick_id <= (
    SELECT tick_id FROM ticks WHERE schedule = ? ORDER BY tick_id DESC LIMIT 1 OFFSET ?
) AND (run IS NULL OR ? OR NOT EXISTS (
    SELECT 1 FROM runs r WHERE r.run = ticks.run AND r.status < 10))

-- name: list_schedules
SELECT id, digest, plan, overlap, source, created, updated, next, last, paused FROM schedules
WHERE id > ? ORDER BY id LIMIT ?

-- name: one_schedule
SELECT id, digest, plan, overlap, source, created, updated, next, last, paused FROM schedules
WHERE id = ?

-- name: due_schedules
SELECT id, digest, plan, overlap, source, created, updated, next, last, paused FROM schedules
WHERE next IS NOT NULL AND paused = 0 AND next <= ? ORDER BY next LIMIT ?

-- name: next_schedule
SELECT min(next) FROM schedules WHERE next IS NOT NULL AND paused = 0 AND next > ?

-- name: ticks_of_schedule
SELECT t.tick, t.at, t.run_id, r.status, t.why, t.manual
FROM schedules s CROSS JOIN ticks t ON t.schedule = s.schedule LEFT JOIN runs r ON r.run = t.run
WHERE s.id = ? ORDER BY t.tick_id DESC LIMIT ?
