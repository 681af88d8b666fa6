-- Makes a row for a name that had none. One row is affected if it did, none if another client was faster.
-- $1 name, $2 kind, $3 owner, $4 token, $5 expires, $6 since, $7 about, $8 crowd, $9 crowd_until, $10 next
INSERT INTO {table} (name, lock_until, locked_at, locked_by)
VALUES ($1, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL GREATEST($5, 1000000) MICROSECOND,
  TIMESTAMP'1970-01-01 00:00:00' + INTERVAL $6 MICROSECOND, $3)
ON DUPLICATE KEY UPDATE name = name
