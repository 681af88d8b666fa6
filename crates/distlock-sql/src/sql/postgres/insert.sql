-- Makes a row for a key that had none. Returns one row if it did, none if another client was faster.
-- $1 name, $2 kind, $3 owner, $4 token, $5 expires, $6 since, $7 about, $8 crowd, $9 crowd_until, $10 next
INSERT INTO {table} (name, kind, owner, token, expires, since, about, crowd, crowd_until, next)
VALUES ($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::text, $8::text, $9::bigint, $10::text)
ON CONFLICT (name) DO NOTHING RETURNING version
