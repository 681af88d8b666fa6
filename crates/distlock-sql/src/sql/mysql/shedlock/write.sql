-- Replaces a row if it is still as it was read (compare and set by lock_until). One row is affected if it was.
-- $1 name, $2 version, $3 kind, $4 owner, $5 token, $6 expires, $7 since, $8 about, $9 crowd, $10 crowd_until, $11 next
-- (only name, owner and times have a place)
UPDATE {table} SET
  locked_at = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL $7 MICROSECOND,
  locked_by = $4,
  lock_until = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL GREATEST($6, 1000000) MICROSECOND
WHERE name = $1 AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until) = $2
