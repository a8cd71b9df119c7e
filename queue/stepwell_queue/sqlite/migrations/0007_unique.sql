-- A key that is taken has `unique_hold` >= 0; the runs that had it before keep it as -1 - `unique_hold`, so that one of
-- them can have it again when it is taken up. Looking for who has a key does not pass those.
DROP INDEX terms_unique;
CREATE INDEX terms_unique ON terms (unique_key) WHERE unique_hold >= 0;

-- Calls that swapped what a waiting run executes are in its audit, found by the nonce of the call.
CREATE INDEX audit_replaced ON audit (uid) WHERE action = 'replace';
