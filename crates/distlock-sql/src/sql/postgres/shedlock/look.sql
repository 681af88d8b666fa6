-- The rows of these names in the shape of our own table, and a last row with the server's time. What changes with every
-- change, and so serves as the version, is lock_until.
-- $1 names
SELECT name::text, 'mutex'::text, locked_by::text, 0::bigint, (extract(epoch FROM lock_until) * 1000000)::bigint,
  (extract(epoch FROM locked_at) * 1000000)::bigint, ''::text, 0::bigint, ''::text, 0::bigint,
  (extract(epoch FROM lock_until) * 1000000)::bigint, {now} FROM {table} WHERE name = ANY($1::text[])
UNION ALL SELECT ''::text, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, ''::text, 0::bigint, ''::text, 0::bigint, 0::bigint, {now}
