-- Says that somebody waits for this key and wants to be notified, and looks, in one atomic step: a release before it
-- is seen by this look, a release after it notifies.
-- $1 name, $2 for how long, in microseconds
UPDATE {table} SET waits = {now} + $2::bigint WHERE name = $1::text
RETURNING name, kind, owner, token, expires, since, about, waits, crowd, crowd_until, version, {now}
