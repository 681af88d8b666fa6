-- Gives an exclusive hold back, or leaves an ownerless record that lives on for $3, and notifies if the row says that
-- somebody waits: one statement. Returns one row if the hold was there. A negative `waits` means "was notified": the
-- old value is still readable in RETURNING, which only sees the new row. The notice names the fair waiter whose turn
-- it is, if there is one, so that nobody else wakes.
-- $1 name, $2 owner, $3 microseconds to keep, $4 channel
WITH freed AS (
  UPDATE {table} SET
    owner = CASE WHEN $3::bigint > 0 THEN '=kept' ELSE '' END,
    expires = CASE WHEN $3::bigint > 0 THEN {now} + $3::bigint ELSE 0 END,
    since = {now},
    waits = CASE WHEN $3::bigint > 0 THEN waits WHEN waits > 0 THEN -waits ELSE 0 END,
    version = version + 1
  WHERE name = $1::text AND owner = $2::text
  RETURNING waits, next, crowd_until
)
SELECT CASE WHEN waits < -{now}
            THEN pg_notify($4::text, CASE WHEN crowd_until > {now} THEN next ELSE '' END || ' ' || $1::text)::text
            ELSE '' END
FROM freed
