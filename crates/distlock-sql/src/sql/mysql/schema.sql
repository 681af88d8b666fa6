-- The table of locks: one row per key, made by the first claim and purged when idle. All times are microseconds
-- since 1970 by this server's clock, so that no time zone or client clock can ever matter. Names are bytes, so that
-- no collation can ever fold them. `expires` judges the exclusive holder, `crowd` lists readers, slots and fair
-- waiters as JSON, `crowd_until` is the last time at which any of those counts, and `version` grows with every change.
CREATE TABLE IF NOT EXISTS {table} (
  name varbinary(700) NOT NULL PRIMARY KEY,
  kind varbinary(32) NOT NULL,
  owner varbinary(64) NOT NULL,
  token bigint NOT NULL,
  expires bigint NOT NULL,
  since bigint NOT NULL,
  about mediumtext NOT NULL,
  waits bigint NOT NULL DEFAULT 0,
  crowd mediumtext NOT NULL,
  crowd_until bigint NOT NULL DEFAULT 0,
  next varbinary(64) NOT NULL DEFAULT '',
  version bigint NOT NULL DEFAULT 1
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='distlock locks 1';
