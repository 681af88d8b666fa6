-- Replaces a row if it is still as it was read (compare and set by lock_until). Returns one row if it was.
-- $1 name, $2 version, $3 kind, $4 owner, $5 token, $6 expires, $7 since, $8 about, $9 crowd, $10 crowd_until, $11 next,
-- $12 channel (only name, owner and times have a place)
UPDATE {table} SET
  lock_until = timestamp 'epoch' + greatest($6::bigint, 1000000) * interval '1 microsecond',
  locked_at = timestamp 'epoch' + $7::bigint * interval '1 microsecond',
  locked_by = $4::text
WHERE name = $1::text AND (extract(epoch FROM lock_until) * 1000000)::bigint = $2::bigint
  AND ($3::text, $5::bigint, $8::text, $9::text, $10::bigint, $11::text, $12::text) IS NOT NULL
RETURNING 1::bigint
