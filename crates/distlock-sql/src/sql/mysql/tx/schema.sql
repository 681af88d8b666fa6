-- One row per name that was ever locked inside a transaction; the row's own lock is the lock. Rows may be deleted at
-- any time. Made ahead of time: creating a table would commit the transaction.
CREATE TABLE IF NOT EXISTS {table} (
  name varbinary(700) NOT NULL PRIMARY KEY
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='distlock transaction locks 1';
