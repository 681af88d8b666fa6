-- Takes a key exclusively: one statement, one round trip, without RETURNING. No row is affected when somebody else
-- has the key; otherwise the token travels in the reply as the "last insert id". Assignments see the columns to
-- their left already changed, hence the order: the token is computed from the old row, then the owner, then the
-- expiry; afterwards "owner is us and it has not expired" is true exactly when the key was granted.
-- UTC_TIMESTAMP is the time at which the statement began, before any wait for the row: "expired" is judged late
-- rather than early.
-- $1 name, $2 kind, $3 owner, $4 ttl in microseconds, $5 about
INSERT INTO {table} (name, kind, owner, token, expires, since, about, crowd)
VALUES ($1, $2, $3, LAST_INSERT_ID({now}), {now} + $4, {now}, $5, '')
ON DUPLICATE KEY UPDATE
  token = IF(expires <= {now} AND crowd_until <= {now}, LAST_INSERT_ID(GREATEST(token + 1, {now})),
             IF(owner = $3 AND expires > {now}, LAST_INSERT_ID(token), token)),
  owner = IF(expires <= {now} AND crowd_until <= {now}, $3, owner),
  since = IF(expires <= {now} AND crowd_until <= {now}, {now}, since),
  expires = IF((expires <= {now} AND crowd_until <= {now}) OR (owner = $3 AND expires > {now}), {now} + $4, expires),
  kind = IF(owner = $3 AND expires > {now}, $2, kind),
  about = IF(owner = $3 AND expires > {now}, $5, about),
  version = IF(owner = $3 AND expires > {now}, version + 1, version)
