//! What an error of a commit says.

/// Tells the errors after which a transaction is known not to be committed from those after which nobody knows.
///
/// ```no_run
/// # async fn example(guard: distlock_core::Guard, tx: tokio_postgres::Transaction<'_>) {
/// use distlock_core::CommitError;
/// use distlock_sql::tx::CommitFailure;
/// match guard.release_after(tx.commit()).await {
///     Ok(_committed) => {}
///     // A serialization failure, a deferred constraint: nothing was written, the lock can go.
///     Err(CommitError::Failed(failed)) if failed.error().is_rolled_back() => drop(failed.rolled_back().await),
///     // The connection broke, for instance: kept until the lease has run out.
///     Err(_unknown) => {}
/// }
/// # }
/// ```
pub trait CommitFailure {
    /// Whether the server itself answered that it has rolled the transaction back.
    fn is_rolled_back(&self) -> bool;
}

impl CommitFailure for tokio_postgres::Error {
    fn is_rolled_back(&self) -> bool {
        use tokio_postgres::error::Severity;
        // A fatal error ends the session, maybe after the commit was written.
        self.as_db_error().is_some_and(|said| {
            said.parsed_severity() == Some(Severity::Error) && rolled_back_postgres(said.code().code())
        })
    }
}

impl CommitFailure for mysql_async::Error {
    fn is_rolled_back(&self) -> bool {
        matches!(self, Self::Server(said) if rolled_back_mysql(said.code))
    }
}

/// All but "resolution unknown" and "completion unknown".
pub(super) fn rolled_back_postgres(code: &str) -> bool {
    !matches!(code, "08007" | "40003")
}

/// A deadlock (with Galera also a certificate that failed), and a group that refused the transaction.
pub(super) fn rolled_back_mysql(code: u16) -> bool {
    matches!(code, 1213 | 3101)
}
