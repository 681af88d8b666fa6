-- The largest token seen for each guarded thing.
CREATE TABLE IF NOT EXISTS {table} (
  name text COLLATE "C" PRIMARY KEY,
  token bigint NOT NULL
);
COMMENT ON TABLE {table} IS 'distlock fences 1';
