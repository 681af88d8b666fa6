-- The table of locks: one row per key, made by the first claim and purged when idle. All times are microseconds
-- since 1970 by this server's clock, so that no time zone or client clock can ever matter. `expires` judges the
-- exclusive holder, `crowd` lists readers, slots and fair waiters as JSON, `crowd_until` is the last time at which
-- any of those counts, `waits` says until when somebody wants to be notified, and `version` grows with every change.
CREATE TABLE IF NOT EXISTS {table} (
  name text COLLATE "C" PRIMARY KEY,
  kind text NOT NULL,
  owner text COLLATE "C" NOT NULL,
  token bigint NOT NULL,
  expires bigint NOT NULL,
  since bigint NOT NULL,
  about text NOT NULL DEFAULT '',
  waits bigint NOT NULL DEFAULT 0,
  crowd text NOT NULL DEFAULT '',
  crowd_until bigint NOT NULL DEFAULT 0,
  next text COLLATE "C" NOT NULL DEFAULT '',
  version bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE {table} IS 'distlock locks 1';
