-- Who holds these names: what a process asks about its own holds, to hear within a second that one was taken away.
-- $1 names
SELECT name, owner, crowd FROM {table} WHERE name IN ($1)
