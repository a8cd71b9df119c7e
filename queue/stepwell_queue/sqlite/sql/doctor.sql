-- name: doctor_claim
SELECT id, 'running, but no registered worker holds it' FROM runs
WHERE status = 2 AND (worker IS NULL OR worker NOT IN (SELECT worker FROM workers))
UNION ALL
SELECT id, 'held by worker ' || worker || ', but not running' FROM runs
WHERE worker IS NOT NULL AND status <> 2
LIMIT 100

-- name: doctor_wake
SELECT id, 'parked with neither a due time nor an open operation nor a word on what it waits for'
FROM runs r WHERE status = 3 AND due IS NULL AND waiting = ''
    AND NOT EXISTS (SELECT 1 FROM open_ops o WHERE o.run = r.run)
UNION ALL
SELECT id, 'parked without a due time, but an operation is due at ' || (
    SELECT min(o.due) FROM open_ops o WHERE o.run = r.run) FROM runs r
WHERE status = 3 AND due IS NULL
    AND EXISTS (SELECT 1 FROM open_ops o WHERE o.run = r.run AND o.due IS NOT NULL)
UNION ALL
SELECT id, 'scheduled without a due time' FROM runs r WHERE status = 0 AND due IS NULL
    AND NOT EXISTS (SELECT 1 FROM dependencies d WHERE d.run = r.run)
UNION ALL
SELECT id, 'has a due time, but is neither scheduled nor parked' FROM runs
WHERE due IS NOT NULL AND status NOT IN (0, 3)
LIMIT 100

-- name: doctor_dependency
SELECT r.id, 'waits for the end of run #' || d.needs || ', which is gone'
FROM dependencies d JOIN runs r ON r.run = d.run WHERE d.needs NOT IN (SELECT run FROM runs)
UNION ALL
SELECT r.id, 'waits for the end of run ' || n.id || ', which has ended without telling it'
FROM dependencies d JOIN runs r ON r.run = d.run JOIN runs n ON n.run = d.needs WHERE n.status >= 10
    AND NOT EXISTS (SELECT 1 FROM dependencies u WHERE u.run = 0 AND u.needs = d.needs)
UNION ALL
SELECT r.id, 'waits for the end of run ' || n.id || ', which does not know it'
FROM dependencies d JOIN runs r ON r.run = d.run JOIN runs n ON n.run = d.needs
WHERE n.status < 10 AND n.awaited = 0
UNION ALL
SELECT r.id, 'waits for the ends of runs, but is not scheduled' FROM dependencies d
JOIN runs r ON r.run = d.run WHERE r.status NOT IN (0, 4) OR r.due IS NOT NULL
UNION ALL
SELECT NULL, 'a dependency of run #' || run || ', which is gone' FROM dependencies
WHERE run > 0 AND run NOT IN (SELECT run FROM runs)
LIMIT 100

-- name: doctor_gate
SELECT r.id, 'has a key, but no claim looks for keys in its queue' FROM targets t
CROSS JOIN runs r ON r.target = t.target
WHERE t.open = 1 AND r.status = 1 AND r.crashes < 2 AND r.lane <> 0
UNION ALL
SELECT r.id, 'expires, but no claim looks for that in its queue' FROM terms m
CROSS JOIN runs r ON r.run = m.run CROSS JOIN targets t ON t.target = r.target
WHERE m.expires IS NOT NULL AND r.status < 2 AND r.fence = 0 AND t.open = 1
UNION ALL
SELECT NULL, 'queue ' || q.queue || ' is paused or limited, but claimed from without a look at that'
FROM queues q WHERE (q.paused = 1 OR q.gated = 1)
    AND EXISTS (SELECT 1 FROM targets t WHERE t.queue = q.queue AND t.open = 1)
LIMIT 100

-- name: doctor_pause
SELECT r.id, 'noted as paused, but its status is ' || r.status FROM pauses p JOIN runs r ON r.run = p.run
WHERE r.status <> 4
UNION ALL
SELECT NULL, 'a pause of run #' || run || ', which is gone' FROM pauses WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT r.id, 'is to pause once its worker lets go of it, which it has' FROM inbox i JOIN runs r ON r.run = i.run
WHERE i.kind = 7 AND i.absorbed = 0 AND r.status IN (0, 1, 3)
UNION ALL
SELECT NULL, 'target #' || t.target || ' is claimed from, though ' || t.name || ' is paused' FROM targets t
JOIN paused_names n ON n.name = t.name AND n.paused = 1 WHERE t.kind <> 2 AND (t.open = 1 OR t.paused = 0)
UNION ALL
SELECT NULL, 'target #' || t.target || ' is paused, but ' || t.name || ' is not' FROM targets t
WHERE t.paused = 1 AND t.name NOT IN (SELECT name FROM paused_names WHERE paused = 1)
LIMIT 100

-- name: doctor_inbox
SELECT r.id, 'parked, but its inbox holds a message that it has not taken' FROM runs r
WHERE r.status = 3 AND EXISTS (SELECT 1 FROM inbox i WHERE i.run = r.run AND i.absorbed = 0)
LIMIT 100

-- name: doctor_child
SELECT r.id, 'waits for child ' || c.id || ', which has ended without telling it'
FROM runs r JOIN runs c ON c.parent = r.run
WHERE r.status < 10 AND c.status >= 10 AND c.parent_path <> '' AND NOT EXISTS (
    SELECT 1 FROM inbox i WHERE i.run = r.run AND i.uid = c.id)
    AND NOT (r.generation > 0 AND c.ended <= r.scheduled) -- a generation before has taken that, and it may be forgotten
UNION ALL
SELECT c.id, 'its parent is gone' FROM runs c
WHERE c.parent IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.run = c.parent)
UNION ALL
SELECT c.id, 'a step still to be run, but its run has ended' FROM runs c
JOIN runs p ON p.run = c.parent JOIN targets t ON t.target = c.target
WHERE t.kind = 2 AND c.status IN (0, 1) AND c.fence = 0 AND p.status >= 10
LIMIT 100

-- name: doctor_terminated
SELECT c.id, 'its parent ' || p.id || ' was terminated without it: terminate that again' FROM runs p
CROSS JOIN runs c ON c.parent = p.run
WHERE p.status = 13 AND c.parent_path <> '' AND c.status < 10
LIMIT 100

-- name: doctor_journal
SELECT r.id, 'its journal has ' || count(*) || ' records, the last is number ' || max(j.seq)
FROM journal j JOIN runs r ON r.run = j.run
GROUP BY j.run HAVING count(*) <> max(j.seq) + 1 OR min(j.seq) <> 0
UNION ALL
SELECT r.id, 'the journal has operation ' || j.path || ' ' || count(*) || ' times' FROM (
    SELECT run, path, kind, sum(kind = 10) OVER (PARTITION BY run ORDER BY seq) AS era
    FROM journal) j JOIN runs r ON r.run = j.run
WHERE j.kind IN (0, 1, 2, 4, 5, 6, 13) AND j.path <> ''
GROUP BY j.run, j.path, j.era HAVING count(*) > 1
LIMIT 100

-- name: doctor_ended
SELECT id, 'has ended, but operations are open' FROM runs r
WHERE status >= 10 AND EXISTS (SELECT 1 FROM open_ops o WHERE o.run = r.run)
UNION ALL
SELECT id, 'status and time of ending do not fit' FROM runs WHERE (status >= 10) <> (ended IS NOT NULL)
LIMIT 100

-- name: doctor_target
SELECT id, 'its target #' || target || ' is missing' FROM runs
WHERE target NOT IN (SELECT target FROM targets)
LIMIT 100

-- name: doctor_orphans
SELECT NULL, 'a blob of run #' || run || ', which is gone' FROM blobs
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'a journal record of run #' || run || ', which is gone' FROM journal
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'an open operation of run #' || run || ', which is gone' FROM open_ops
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'a message to run #' || run || ', which is gone' FROM inbox
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'terms of run #' || run || ', which is gone' FROM terms
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'a failed attempt of run #' || run || ', which is gone' FROM failures
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'a report of run #' || run || ', which is gone' FROM reports
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'a log line of run #' || run || ', which is gone' FROM log_lines
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'a count of what run #' || run || ' has said, which is gone' FROM said
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'a value of run #' || run || ', which is gone' FROM run_values
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'an item of stream ' || stream || ' of run #' || run || ', which is gone' FROM stream_items
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT NULL, 'an answer of run #' || run || ', which is gone' FROM answers
WHERE run NOT IN (SELECT run FROM runs)
UNION ALL
SELECT id, 'its arguments are missing' FROM runs r WHERE args IS NULL
    AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.run = r.run AND b.role = 0)
UNION ALL
SELECT id, 'its result is missing' FROM runs r WHERE value IS NULL
    AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.run = r.run AND b.role = 1)
LIMIT 100

-- name: doctor_notes
SELECT r.id, 'its stream ' || i.stream || ' has ' || count(*) || ' items, the last is number ' || max(i."offset")
FROM stream_items i JOIN runs r ON r.run = i.run
GROUP BY i.run, i.stream HAVING count(*) <> max(i."offset") OR min(i."offset") <> 1
LIMIT 100

-- name: doctor_file
SELECT NULL, quick_check FROM pragma_quick_check WHERE quick_check <> 'ok'
