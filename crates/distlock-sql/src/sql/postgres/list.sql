-- The rows in use of a range of names, in order.
-- $1 from (included), $2 to (excluded), $3 how many
SELECT name, kind, owner, token, expires, since, about, waits, crowd, crowd_until, version, {now}
FROM {table} WHERE name >= $1::text AND name < $2::text AND (expires > {now} OR crowd_until > {now})
ORDER BY name LIMIT $3::bigint
