-- Records what came of an event; what is recorded already stays.
-- $1 name, $2 result
INSERT INTO {table} AS r (name, result) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET result = coalesce(r.result, excluded.result)
