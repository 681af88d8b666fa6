-- What came of each event. A row without a result was claimed by a transaction that recorded none. Rows may be deleted
-- when the event cannot come again.
CREATE TABLE IF NOT EXISTS {table} (
  name text COLLATE "C" PRIMARY KEY,
  result text,
  made timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE {table} IS 'distlock results 1';
