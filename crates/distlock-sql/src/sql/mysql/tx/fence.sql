-- Remembers the larger of our token and the largest seen; the row stays locked until the transaction ends. The
-- reply's "last insert id" is the remembered token, which is larger than ours if we are refused.
-- $1 name, $2 token
INSERT INTO {table} (name, token) VALUES ($1, LAST_INSERT_ID($2))
ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, $2))
