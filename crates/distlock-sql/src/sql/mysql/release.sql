-- Gives an exclusive hold back, or leaves an ownerless record that lives on for $3. One row is affected if the hold
-- was there.
-- $1 name, $2 owner, $3 microseconds to keep
UPDATE {table} SET
  owner = IF($3 > 0, '=kept', ''),
  expires = IF($3 > 0, {now} + $3, 0),
  since = {now},
  version = version + 1
WHERE name = $1 AND owner = $2
