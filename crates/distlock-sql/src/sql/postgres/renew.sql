-- Renews many exclusive holds in one statement; returns the owners of those that were there and alive. Never
-- acquires: an expired row stays expired.
-- $1 names, $2 owners, $3 ttls in microseconds, $4 floors of the token (0 for none)
UPDATE {table} AS l SET
  expires = {now} + r.ttl,
  token = greatest(l.token, r.floor),
  version = l.version + 1
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS r(name, owner, ttl, floor)
WHERE l.name = r.name AND l.owner = r.owner AND l.expires > {now}
RETURNING l.owner
