-- Locks the row of an event until the transaction ends, making it if there is none: another transaction with the same
-- event waits here for our end. Returns the result that an earlier one has recorded.
-- $1 name
INSERT INTO {table} AS r (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = r.name RETURNING result
