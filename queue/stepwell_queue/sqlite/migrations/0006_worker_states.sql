-- What a worker is about, for people: 0 starting, 1 running, 2 stopping.
ALTER TABLE workers ADD COLUMN state INTEGER NOT NULL DEFAULT 0;

UPDATE workers SET state = 1;
