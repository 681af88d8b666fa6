-- Gives a name back, or leaves an ownerless record that lives on for $3. Returns one row if it was ours.
-- $1 name, $2 owner, $3 microseconds to keep, $4 channel (nobody is notified: Java would not notify us either)
UPDATE {table} SET
  lock_until = timezone('utc', clock_timestamp()) + $3::bigint * interval '1 microsecond',
  locked_by = CASE WHEN $3::bigint > 0 THEN '=kept' ELSE '' END
WHERE name = $1::text AND locked_by = $2::text AND $4::text IS NOT NULL
RETURNING 1::bigint
