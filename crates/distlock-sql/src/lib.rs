//! The MySQL/MariaDB and PostgreSQL engines of distlock.
