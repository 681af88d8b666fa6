-- Who holds these names.
-- $1 names
SELECT name, locked_by, '' FROM {table} WHERE name IN ($1)
