//! What an answer that is not one means: was the request applied, and is it worth asking again?

use std::error::Error as StdError;
use std::fmt;

use distlock_core::driver::{DriverError, DriverErrorKind, Reached, Refusal};
use tonic::{Code, Status};

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reached: Reached,
    pub(crate) why: Why,
    text: String,
}

/// The failures that somebody tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The member did not answer, or cannot serve; another one may.
    Member,
    /// The lease does not exist (any more).
    NoLease,
    /// A lease with the id that we chose exists already.
    LeaseExists,
    /// The token has expired or is no longer accepted; sign in again.
    SignIn,
    /// The cluster refuses, and will again.
    Refused,
    /// The method does not exist in this version.
    Unknown,
}

impl Failure {
    /// No answer in time.
    pub(crate) fn timeout(endpoint: &str) -> Self {
        let text = format!("no answer from {endpoint} in time");
        Self {
            reached: Reached::Maybe,
            why: Why::Member,
            text,
        }
    }

    /// A failure before anything was sent.
    pub(crate) fn unsent(text: impl Into<String>) -> Self {
        Self {
            reached: Reached::No,
            why: Why::Member,
            text: text.into(),
        }
    }

    /// From what the server, or the transport, said.
    pub(crate) fn from_status(status: &Status, endpoint: &str) -> Self {
        let said = status.message();
        let (reached, why) = classify(status, said);
        let text = match root(status) {
            // The transport's own words are only in the chain of sources.
            Some(root) if !said.contains("etcdserver") => format!("{endpoint}: {root}"),
            _ => format!("{endpoint}: {said}"),
        };
        Self { reached, why, text }
    }
}

fn classify(status: &Status, said: &str) -> (Reached, Why) {
    if never_connected(status) {
        return (Reached::No, Why::Member);
    }
    // The server's messages, and what they mean for the request: api/v3rpc/rpctypes in etcd's sources.
    match said.strip_prefix("etcdserver: ").unwrap_or(said) {
        "requested lease not found" => (Reached::No, Why::NoLease),
        "lease already exists" => (Reached::No, Why::LeaseExists),
        "invalid auth token" | "user name is empty" | "auth: revision in header is old" => {
            (Reached::No, Why::SignIn)
        }
        "no leader" | "too many requests" | "not capable" | "mvcc: database space exceeded" => {
            (Reached::No, Why::Member)
        }
        _ => match status.code() {
            Code::Unimplemented => (Reached::No, Why::Unknown),
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition => (Reached::No, Why::Refused),
            _ => (Reached::Maybe, Why::Member),
        },
    }
}

fn chain(status: &Status) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(status.source(), |e: &&(dyn StdError + 'static)| (*e).source())
}

fn never_connected(status: &Status) -> bool {
    chain(status).any(|e| e.is::<tonic::ConnectError>())
}

fn root(status: &Status) -> Option<String> {
    chain(status).last().map(ToString::to_string)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Failure {}

impl From<Failure> for DriverError {
    fn from(failure: Failure) -> Self {
        match failure.why {
            Why::Refused | Why::SignIn => DriverError::refused(Refusal::InvalidConfig(failure.text)),
            Why::Unknown => DriverError::refused(Refusal::Unsupported(failure.text)),
            Why::Member | Why::NoLease | Why::LeaseExists => DriverError {
                kind: DriverErrorKind::Unavailable,
                reached: failure.reached,
                retry: true,
                source: Some(failure.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_refused_was_not_applied() {
        for said in ["etcdserver: no leader", "etcdserver: too many requests"] {
            let failure = Failure::from_status(&Status::unavailable(said), "e");
            assert_eq!(failure.reached, Reached::No, "{said}");
        }
        let failure = Failure::from_status(&Status::not_found("etcdserver: requested lease not found"), "e");
        assert_eq!(failure.why, Why::NoLease);
    }

    #[test]
    fn what_the_server_gave_up_may_have_been_applied() {
        for said in [
            "etcdserver: request timed out",
            "etcdserver: leader changed",
            "transport error",
        ] {
            let failure = Failure::from_status(&Status::unavailable(said), "e");
            assert_eq!(failure.reached, Reached::Maybe, "{said}");
            let error = DriverError::from(failure);
            assert!(error.retry);
            assert_eq!(error.reached, Reached::Maybe);
        }
    }
}
