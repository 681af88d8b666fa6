-- The rows of these names in the shape of our own table, and a last row with the server's time. What changes with every
-- change, and so serves as the version, is lock_until.
-- $1 names
SELECT name, 'mutex', locked_by, 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until),
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at), '', 0, '', 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until), {now} FROM {table} WHERE name IN ($1)
UNION ALL SELECT '', '', '', 0, 0, 0, '', 0, '', 0, 0, {now}
