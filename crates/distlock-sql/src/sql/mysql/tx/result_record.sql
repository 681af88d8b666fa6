-- Records what came of an event; what is recorded already stays.
-- $1 name, $2 result
INSERT INTO {table} (name, result) VALUES ($1, $2) ON DUPLICATE KEY UPDATE result = COALESCE(result, $2)
