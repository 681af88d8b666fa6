-- The last of the next so many names: where a page of the purge ends.
-- $1 after, $2 how many
SELECT MAX(name), COUNT(*) FROM (SELECT name FROM {table} WHERE name > $1 ORDER BY name LIMIT $2) AS page
