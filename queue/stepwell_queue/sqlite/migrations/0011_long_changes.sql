-- What would change a great many rows is done in passes. `aged`: when ageing was taken away or changed, the runs up to
-- this number have yet to get back the priority that was asked for; NULL = none has.
ALTER TABLE queues ADD COLUMN aged INTEGER;
