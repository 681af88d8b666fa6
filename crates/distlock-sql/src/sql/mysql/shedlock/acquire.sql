-- Takes a name: one statement. No row is affected when somebody else has it. Assignments see the columns to their left
-- already changed: the owner is replaced where the time has passed, then the time is set where we are the owner.
-- $1 name, $2 kind, $3 owner, $4 ttl in microseconds, $5 about (the table has no place for kind and about)
INSERT INTO {table} (name, lock_until, locked_at, locked_by)
VALUES ($1, UTC_TIMESTAMP(6) + INTERVAL $4 MICROSECOND, UTC_TIMESTAMP(6), $3)
ON DUPLICATE KEY UPDATE
  locked_at = IF(lock_until <= UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), locked_at),
  locked_by = IF(lock_until <= UTC_TIMESTAMP(6), $3, locked_by),
  lock_until = IF(locked_by = $3, UTC_TIMESTAMP(6) + INTERVAL $4 MICROSECOND, lock_until)
