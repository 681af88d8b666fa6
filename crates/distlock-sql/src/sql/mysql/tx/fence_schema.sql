-- The largest token seen for each guarded thing.
CREATE TABLE IF NOT EXISTS {table} (
  name varbinary(700) NOT NULL PRIMARY KEY,
  token bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='distlock fences 1';
