-- The rows of these names, and a last row with the server's time for names that have no row. Locks nothing.
-- $1 names
SELECT name, kind, owner, token, expires, since, about, waits, crowd, crowd_until, version, {now} FROM {table} WHERE name IN ($1)
UNION ALL SELECT '', '', '', 0, 0, 0, '', 0, '', 0, 0, {now}
