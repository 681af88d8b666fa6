//! The part of etcd's public gRPC API (package `etcdserverpb`, v3) that a lock needs: messages and how to send them.
//!
//! Written by hand from the published field numbers, so that nobody needs a protocol compiler. Fields that we
//! neither set nor read are left out; protobuf skips them.

mod admin;
mod kv;
mod lease;
mod watch;

pub(crate) use self::admin::{
    AlarmRequest, AlarmResponse, AuthenticateRequest, AuthenticateResponse, MemberListRequest,
    MemberListResponse, StatusRequest, StatusResponse,
};
pub(crate) use self::kv::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, DeleteRangeResponse, KeyValue, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RequestOp, Sort, Target, TxnRequest, TxnResponse,
};
pub(crate) use self::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
pub(crate) use self::watch::{
    EVENT_DELETE, FILTER_NO_PUT, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse,
    watch_request,
};

use futures_util::Stream;
use prost::Message;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// What every answer carries.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// An answer.
pub(crate) trait Reply: Message + Default + 'static {
    /// Its header, if the server sent one.
    fn header(&self) -> Option<&ResponseHeader>;
}

/// A request with one answer.
pub(crate) trait Call: Message + Clone + 'static {
    /// Its answer.
    type Reply: Reply;
    /// The method's path.
    const PATH: &'static str;
}

macro_rules! calls {
    ($($request:ty => $reply:ty, $path:literal;)*) => {$(
        impl Reply for $reply {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        }
        impl Call for $request {
            type Reply = $reply;
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
        }
    )*};
}

calls! {
    RangeRequest => RangeResponse, "KV/Range";
    PutRequest => PutResponse, "KV/Put";
    DeleteRangeRequest => DeleteRangeResponse, "KV/DeleteRange";
    TxnRequest => TxnResponse, "KV/Txn";
    LeaseGrantRequest => LeaseGrantResponse, "Lease/LeaseGrant";
    LeaseRevokeRequest => LeaseRevokeResponse, "Lease/LeaseRevoke";
    LeaseTimeToLiveRequest => LeaseTimeToLiveResponse, "Lease/LeaseTimeToLive";
    AuthenticateRequest => AuthenticateResponse, "Auth/Authenticate";
    StatusRequest => StatusResponse, "Maintenance/Status";
    AlarmRequest => AlarmResponse, "Maintenance/Alarm";
    MemberListRequest => MemberListResponse, "Cluster/MemberList";
}

/// The path of the stream of watches.
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// The path of the stream of keepalives.
pub(crate) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// The largest answer that we accept; a long line of waiters is larger than gRPC's default of 4 MiB.
const MAX_ANSWER: usize = 64 << 20;

async fn ready(channel: Channel) -> Result<tonic::client::Grpc<Channel>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(MAX_ANSWER);
    grpc.ready().await.map_err(|e| Status::from_error(Box::new(e)))?;
    Ok(grpc)
}

/// Sends a request and waits for its answer.
pub(crate) async fn unary<C: Call>(channel: Channel, request: Request<C>) -> Result<C::Reply, Status> {
    let path = PathAndQuery::from_static(C::PATH);
    let codec = ProstCodec::<C, C::Reply>::default();
    Ok(ready(channel)
        .await?
        .unary(request, path, codec)
        .await?
        .into_inner())
}

/// Opens a stream in both directions.
pub(crate) async fn stream<S, A>(
    channel: Channel,
    path: &'static str,
    requests: Request<S>,
) -> Result<Streaming<A>, Status>
where
    S: Stream + Send + 'static,
    S::Item: Message + 'static,
    A: Message + Default + 'static,
{
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<S::Item, A>::default();
    Ok(ready(channel)
        .await?
        .streaming(requests, path, codec)
        .await?
        .into_inner())
}
