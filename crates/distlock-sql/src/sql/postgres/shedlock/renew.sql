-- Renews many holds in one statement; returns the owners of those that were there and alive. Never acquires.
-- $1 names, $2 owners, $3 ttls in microseconds, $4 floors of the token (there are no tokens)
UPDATE {table} AS l SET lock_until = timezone('utc', clock_timestamp()) + r.ttl * interval '1 microsecond'
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS r(name, owner, ttl, floor)
WHERE l.name = r.name AND l.locked_by = r.owner AND l.lock_until > timezone('utc', clock_timestamp())
RETURNING l.locked_by
