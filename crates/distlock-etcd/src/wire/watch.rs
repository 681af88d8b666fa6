//! Service `Watch`.

use prost::Message;

use super::ResponseHeader;
use super::kv::KeyValue;

/// `WatchCreateRequest.FilterType.NOPUT`.
pub(crate) const FILTER_NO_PUT: i32 = 0;
/// `mvccpb.Event.EventType.DELETE`.
pub(crate) const EVENT_DELETE: i32 = 1;

/// Starts or ends one watch of a stream.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "watch_request::Union", tags = "1, 2")]
    pub(crate) union: Option<watch_request::Union>,
}

pub(crate) mod watch_request {
    /// `WatchRequest.request_union`.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Union {
        #[prost(message, tag = "1")]
        Create(super::WatchCreateRequest),
        #[prost(message, tag = "2")]
        Cancel(super::WatchCancelRequest),
    }
}

/// Watches one key from a revision on.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
    /// Chosen by us (etcd 3.4 and newer), so that it can be ended before its start was confirmed.
    #[prost(int64, tag = "7")]
    pub(crate) watch_id: i64,
}

/// Ends a watch.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WatchCancelRequest {
    #[prost(int64, tag = "1")]
    pub(crate) watch_id: i64,
}

/// What happened to a watch.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// One change of a key (`mvccpb.Event`).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}
