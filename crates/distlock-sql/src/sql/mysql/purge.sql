-- Removes the rows of a page that nobody has used for so long. A key that comes back later gets a token from the
-- server's clock, which is larger than every token of the removed row unless the clock has stepped back that far.
-- $1 after, $2 to (included), $3 microseconds
DELETE FROM {table}
WHERE name > $1 AND name <= $2
  AND expires < {now} - $3 AND crowd_until < {now} - $3 AND since < {now} - $3
