-- The result that an earlier transaction has recorded: the newest, not the one of this transaction's snapshot.
-- $1 name
SELECT result FROM {table} WHERE name = $1 FOR UPDATE
