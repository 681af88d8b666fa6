//! The engines on real servers.
#![allow(clippy::unwrap_used, missing_docs)]

mod commit;
mod conformance;
mod connections;
mod disk;
mod faults;
mod reach;
mod results;
mod rows;
mod server;
mod session;
mod storms;
mod topology;
mod tx;
mod tx_cases;
#[cfg(feature = "sqlx")]
mod tx_sqlx;

/// One test for each dialect; the body gets the dialect. They are marked like other tests, so that the table of field
/// cases finds their names.
macro_rules! both {
    ($(#[test] $(#[$meta:meta])* async fn $name:ident($dialect:ident) $body:block)+) => {
        $(
            mod $name {
                use super::*;

                async fn body($dialect: distlock_sql::Dialect) $body

                $(#[$meta])*
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn postgres() {
                    body(distlock_sql::Dialect::Postgres).await;
                }

                $(#[$meta])*
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn mysql() {
                    body(distlock_sql::Dialect::Mysql).await;
                }
            }
        )+
    };
}
pub(crate) use both;
