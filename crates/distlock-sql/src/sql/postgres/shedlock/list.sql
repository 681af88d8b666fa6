-- The rows in use of a range of names, in order.
-- $1 from (included), $2 to (excluded), $3 how many
SELECT name::text, 'mutex'::text, locked_by::text, 0::bigint, (extract(epoch FROM lock_until) * 1000000)::bigint,
  (extract(epoch FROM locked_at) * 1000000)::bigint, ''::text, 0::bigint, ''::text, 0::bigint,
  (extract(epoch FROM lock_until) * 1000000)::bigint, {now}
FROM {table} WHERE name::text COLLATE "C" >= $1::text AND name::text COLLATE "C" < $2::text
  AND lock_until > timezone('utc', clock_timestamp())
ORDER BY name::text COLLATE "C" LIMIT $3::bigint
