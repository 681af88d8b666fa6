-- What came of each event. A row without a result was claimed by a transaction that recorded none. Rows may be deleted
-- when the event cannot come again.
CREATE TABLE IF NOT EXISTS {table} (
  name varbinary(700) NOT NULL PRIMARY KEY,
  result longtext CHARACTER SET utf8mb4,
  made timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='distlock results 1';
