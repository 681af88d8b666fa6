-- Takes a key exclusively: one statement, one round trip. It returns the token when the key is ours and no row when
-- somebody else has it. `excluded.since` is the server's time, read once and before any wait for the row, so
-- "expired" is judged late rather than early. A row that is ours already keeps its token (a repeated request).
-- $1 name, $2 kind, $3 owner, $4 ttl in microseconds, $5 about
INSERT INTO {table} AS l (name, kind, owner, token, expires, since, about)
SELECT $1::text, $2::text, $3::text, n.us, n.us + $4::bigint, n.us, $5::text FROM (SELECT {now} AS us) AS n
ON CONFLICT (name) DO UPDATE SET
  kind = excluded.kind,
  owner = excluded.owner,
  token = CASE WHEN l.owner = excluded.owner AND l.expires > excluded.since THEN l.token
               ELSE greatest(l.token + 1, excluded.token) END,
  expires = excluded.expires,
  since = CASE WHEN l.owner = excluded.owner AND l.expires > excluded.since THEN l.since ELSE excluded.since END,
  about = excluded.about,
  version = l.version + 1
WHERE (l.expires <= excluded.since AND l.crowd_until <= excluded.since)
   OR (l.owner = excluded.owner AND l.expires > excluded.since)
RETURNING token
