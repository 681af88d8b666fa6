-- Locks the row of a name until the transaction ends, making it if there is none. A primary key that is met is locked
-- alone, without the gap beside it, so that other names are not disturbed.
-- $1 name
INSERT INTO {table} (name) VALUES ($1) ON DUPLICATE KEY UPDATE name = name
