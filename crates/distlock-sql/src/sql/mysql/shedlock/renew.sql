-- Renews many holds of one ttl in one statement. Never acquires.
-- $1 names, $2 owners, $3 ttl in microseconds, $4 floor of the token (there are no tokens)
UPDATE {table} SET lock_until = UTC_TIMESTAMP(6) + INTERVAL $3 MICROSECOND
WHERE name IN ($1) AND locked_by IN ($2) AND lock_until > UTC_TIMESTAMP(6)
