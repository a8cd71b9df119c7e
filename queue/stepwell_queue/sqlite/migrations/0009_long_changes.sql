-- What would change a great many rows is done in passes. `aged`: when ageing was taken away or changed, the runs up to
-- this number have yet to get back the priority that was asked for; NULL = none has.
ALTER TABLE queues ADD COLUMN aged INTEGER;
-- The uids of the last changes, as JSON, oldest first: one that is said again undoes nothing that came after it.
ALTER TABLE queues ADD COLUMN heard TEXT NOT NULL DEFAULT '[]';

-- Without `status`, which made each change of one look at whether the row is in here.
DROP INDEX runs_ended;
CREATE INDEX runs_ended ON runs (target, ended, parent) WHERE ended IS NOT NULL;
-- With the target, so that looking for what is due in one queue reads no row of the others.
DROP INDEX runs_due;
CREATE INDEX runs_due ON runs (due, target) WHERE due IS NOT NULL;
