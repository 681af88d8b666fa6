-- Locks the row of an event until the transaction ends, making it if there is none: another transaction with the same
-- event waits here for our end.
-- $1 name
INSERT INTO {table} (name) VALUES ($1) ON DUPLICATE KEY UPDATE name = name
