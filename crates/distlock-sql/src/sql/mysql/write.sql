-- Replaces a row if it is still as it was read (compare and set by version). One row is affected if it was.
-- $1 name, $2 version, $3 kind, $4 owner, $5 token, $6 expires, $7 since, $8 about, $9 crowd, $10 crowd_until, $11 next
UPDATE {table} SET kind = $3, owner = $4, token = $5, expires = $6, since = $7, about = $8, crowd = $9,
  crowd_until = $10, next = $11, version = version + 1
WHERE name = $1 AND version = $2
