-- Renews many exclusive holds of one ttl in one statement; as many rows are affected as were there and alive. An
-- owner has one key only, so two lists name pairs. Never acquires: an expired row stays expired.
-- $1 names, $2 owners, $3 ttl in microseconds, $4 floor of the token (0 for none)
UPDATE {table} SET
  expires = {now} + $3,
  token = GREATEST(token, $4),
  version = version + 1
WHERE name IN ($1) AND owner IN ($2) AND expires > {now}
