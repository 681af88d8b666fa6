//! Service `Lease`.

use prost::Message;

use super::ResponseHeader;

/// Asks for a lease; id 0 lets the server choose.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// A lease was granted, for the TTL that the server chose.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Ends a lease and deletes its keys.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// A lease was ended.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
}

/// Asks for one more TTL.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The lease lives so many more seconds; 0 or less: there is no such lease.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Asks how long a lease will live, and for its keys.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    #[prost(bool, tag = "2")]
    pub(crate) keys: bool,
}

/// How long a lease will live; -1: there is no such lease.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "4")]
    pub(crate) granted_ttl: i64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(crate) keys: Vec<Vec<u8>>,
}
