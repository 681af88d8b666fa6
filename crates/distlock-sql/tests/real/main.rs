//! The engines on real servers.
#![allow(clippy::unwrap_used, missing_docs)]

mod conformance;
mod faults;
mod rows;
mod server;
mod session;
mod tx;

/// One test for each dialect; the body gets the dialect.
macro_rules! both {
    ($($(#[$meta:meta])* async fn $name:ident($dialect:ident) $body:block)+) => {
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
