-- Takes a name: one statement. Returns a row if it is ours, none if somebody else has it. The time is read once and
-- before any wait for the row, so "expired" is judged late rather than early.
-- $1 name, $2 kind, $3 owner, $4 ttl in microseconds, $5 about (the table has no place for kind and about)
INSERT INTO {table} AS l (name, lock_until, locked_at, locked_by)
SELECT $1::text, n.t + $4::bigint * interval '1 microsecond', n.t, $3::text
FROM (SELECT timezone('utc', clock_timestamp()) AS t, $2::text AS kind, $5::text AS about) AS n
ON CONFLICT (name) DO UPDATE SET
  lock_until = excluded.lock_until,
  locked_at = CASE WHEN l.locked_by = excluded.locked_by THEN l.locked_at ELSE excluded.locked_at END,
  locked_by = excluded.locked_by
WHERE l.lock_until <= excluded.locked_at OR l.locked_by = excluded.locked_by
RETURNING 0::bigint
