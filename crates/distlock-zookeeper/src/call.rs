//! Requests: each has a deadline, is dated when it is sent, and its failures mean something to the core.

use std::sync::Arc;

use distlock_core::clock::Moment;
use distlock_core::driver::{DriverError, Reached, Refusal};
use zookeeper_client::{Client, Error, MultiWriteError};

use crate::session::Session;

/// The right to send requests now. Requests are sent when the client's methods are called, in that order; their
/// answers are then awaited with [`answer`](Call::answer).
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) session: Arc<Session>,
    pub(crate) client: Arc<Client>,
    pub(crate) sent: Moment,
    /// The number of the connection that it was made on.
    pub(crate) connection: u64,
}

impl Call {
    /// The answer to a request; any answer proves that the session was alive when the request was sent.
    pub(crate) async fn answer<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answer = self
            .session
            .clock()
            .timeout(self.session.patience(), request)
            .await;
        let answer = answer.unwrap_or(Err(Error::Timeout));
        if answer.as_ref().err().is_none_or(is_answer) {
            self.session.alive(self.sent);
        }
        answer
    }
}

/// Whether the server said this, having applied nothing.
pub(crate) fn is_answer(e: &Error) -> bool {
    matches!(
        e,
        Error::NoNode
            | Error::NodeExists
            | Error::NoAuth
            | Error::InvalidAcl
            | Error::BadVersion
            | Error::NotEmpty
            | Error::NoChildrenForEphemerals
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::Unimplemented
    )
}

/// What a failed request means to the core.
pub(crate) fn fault(e: Error) -> DriverError {
    let refused = |refusal| DriverError::refused(refusal);
    match e {
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => {
            refused(Refusal::InvalidConfig(format!("ZooKeeper refuses access: {e}")))
        }
        Error::Unimplemented => refused(Refusal::Unsupported(
            "the servers are older than ZooKeeper 3.5.3 (no container nodes)".into(),
        )),
        Error::NoChildrenForEphemerals => refused(Refusal::InvalidKey(
            "a part of the path is an ephemeral node".into(),
        )),
        Error::BadArguments(why) => refused(Refusal::InvalidKey((*why).into())),
        // The session's nodes are gone with it, so what was asked for cannot come to be.
        Error::SessionExpired | Error::ClientClosed => DriverError::unavailable(Reached::No, e),
        _ if is_answer(&e) => DriverError::unavailable(Reached::No, e),
        _ => DriverError::unavailable(Reached::Maybe, e),
    }
}

/// Why none of several writes was applied.
pub(crate) fn flat(e: MultiWriteError) -> Error {
    match e {
        MultiWriteError::RequestFailed { source } | MultiWriteError::OperationFailed { source, .. } => source,
    }
}
