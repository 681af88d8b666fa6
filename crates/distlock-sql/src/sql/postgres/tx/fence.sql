-- Admits a token that is not smaller than the largest seen, and remembers it; the row stays locked until the
-- transaction ends, so nobody with a larger token can be admitted between this check and the commit. Returns the
-- remembered token, which is larger than ours if we were refused.
-- $1 name, $2 token
INSERT INTO {table} AS f (name, token) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET token = greatest(f.token, excluded.token) RETURNING token
