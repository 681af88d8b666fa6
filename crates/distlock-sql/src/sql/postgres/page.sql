-- The last of the next so many names: where a page of the purge ends.
-- $1 after, $2 how many
SELECT max(name), count(*) FROM (SELECT name FROM {table} WHERE name > $1::text ORDER BY name LIMIT $2::bigint) AS page
