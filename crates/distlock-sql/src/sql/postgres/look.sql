-- The rows of these names, and a last row with the server's time for names that have no row. Locks nothing.
-- $1 names
SELECT name, kind, owner, token, expires, since, about, waits, crowd, crowd_until, version, {now} FROM {table} WHERE name = ANY($1::text[])
UNION ALL SELECT ''::text, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, ''::text, 0::bigint, ''::text, 0::bigint, 0::bigint, {now}
