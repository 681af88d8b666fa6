-- Who holds these names.
-- $1 names
SELECT name::text, locked_by::text, ''::text FROM {table} WHERE name = ANY($1::text[])
