-- The rows in use of a range of names, in order.
-- $1 from (included), $2 to (excluded), $3 how many
SELECT name, 'mutex', locked_by, 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until),
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at), '', 0, '', 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until), {now}
FROM {table} WHERE CAST(name AS BINARY) >= $1 AND CAST(name AS BINARY) < $2 AND lock_until > UTC_TIMESTAMP(6)
ORDER BY CAST(name AS BINARY) LIMIT $3
