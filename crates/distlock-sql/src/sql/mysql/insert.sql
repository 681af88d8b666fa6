-- Makes a row for a key that had none. One row is affected if it did, none if another client was faster.
-- $1 name, $2 kind, $3 owner, $4 token, $5 expires, $6 since, $7 about, $8 crowd, $9 crowd_until, $10 next
INSERT INTO {table} (name, kind, owner, token, expires, since, about, crowd, crowd_until, next)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON DUPLICATE KEY UPDATE name = name
