-- ShedLock's table as its documentation has it. Times are UTC.
CREATE TABLE IF NOT EXISTS {table} (
  name varchar(64) NOT NULL PRIMARY KEY,
  lock_until timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  locked_at timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  locked_by varchar(255) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
