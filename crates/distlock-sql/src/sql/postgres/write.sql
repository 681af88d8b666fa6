-- Replaces a row if it is still as it was read (compare and set by version); notifies if asked and somebody waits.
-- Returns one row if it was. `waits` is left to the row: it may have been marked meanwhile.
-- $1 name, $2 version, $3 kind, $4 owner, $5 token, $6 expires, $7 since, $8 about, $9 crowd, $10 crowd_until, $11 next,
-- $12 channel, or empty for no notice
WITH written AS (
  UPDATE {table} SET kind = $3::text, owner = $4::text, token = $5::bigint, expires = $6::bigint, since = $7::bigint,
    about = $8::text, crowd = $9::text, crowd_until = $10::bigint, next = $11::text, version = version + 1,
    waits = CASE WHEN $12::text = '' THEN waits WHEN waits > 0 THEN -waits ELSE 0 END
  WHERE name = $1::text AND version = $2::bigint
  RETURNING waits
)
SELECT CASE WHEN $12::text <> '' AND waits < -{now} THEN pg_notify($12::text, $11::text || ' ' || $1::text)::text ELSE '' END FROM written
