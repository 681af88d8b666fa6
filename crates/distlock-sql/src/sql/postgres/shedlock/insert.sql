-- Makes a row for a name that had none. Returns one row if it did, none if another client was faster.
-- $1 name, $2 kind, $3 owner, $4 token, $5 expires, $6 since, $7 about, $8 crowd, $9 crowd_until, $10 next
INSERT INTO {table} (name, lock_until, locked_at, locked_by)
SELECT $1::text, timestamp 'epoch' + greatest($5::bigint, 1000000) * interval '1 microsecond',
  timestamp 'epoch' + $6::bigint * interval '1 microsecond', $3::text
WHERE ($2::text, $4::bigint, $7::text, $8::text, $9::bigint, $10::text) IS NOT NULL
ON CONFLICT (name) DO NOTHING RETURNING 1::bigint
