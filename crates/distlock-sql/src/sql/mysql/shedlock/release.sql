-- Gives a name back, or leaves an ownerless record that lives on for $3. One row is affected if it was ours.
-- $1 name, $2 owner, $3 microseconds to keep
UPDATE {table} SET
  lock_until = UTC_TIMESTAMP(6) + INTERVAL $3 MICROSECOND,
  locked_by = IF($3 > 0, '=kept', '')
WHERE name = $1 AND locked_by = $2
