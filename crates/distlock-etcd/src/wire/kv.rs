//! Service `KV`.

use prost::Message;

use super::ResponseHeader;

/// A key as stored (`mvccpb.KeyValue`).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub(crate) version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

/// `RangeRequest.SortOrder`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Sort {
    /// By key.
    None = 0,
    /// Lowest first.
    Ascend = 1,
    /// Highest first.
    Descend = 2,
}

/// `RangeRequest.SortTarget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Target {
    /// The key.
    Key = 0,
    /// The create revision.
    Create = 2,
}

/// Reads keys.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(enumeration = "Sort", tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(enumeration = "Target", tag = "6")]
    pub(crate) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    #[prost(int64, tag = "13")]
    pub(crate) max_create_revision: i64,
}

/// The keys read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
    /// All keys of the range, whatever the limit and filters.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

/// Writes a key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
    #[prost(bool, tag = "5")]
    pub(crate) ignore_value: bool,
    #[prost(bool, tag = "6")]
    pub(crate) ignore_lease: bool,
}

/// A key was written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
}

/// Deletes keys.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

/// Keys were deleted.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) deleted: i64,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "op::Op", tags = "1, 2, 3")]
    pub(crate) op: Option<op::Op>,
}

pub(crate) mod op {
    /// `RequestOp.request`.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Op {
        #[prost(message, tag = "1")]
        Range(super::RangeRequest),
        #[prost(message, tag = "2")]
        Put(super::PutRequest),
        #[prost(message, tag = "3")]
        Delete(super::DeleteRangeRequest),
    }
}

/// The result of one operation.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "reply::Reply", tags = "1, 2, 3")]
    pub(crate) reply: Option<reply::Reply>,
}

pub(crate) mod reply {
    /// `ResponseOp.response`.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Reply {
        #[prost(message, tag = "1")]
        Range(super::RangeResponse),
        #[prost(message, tag = "2")]
        Put(super::PutResponse),
        #[prost(message, tag = "3")]
        Delete(super::DeleteRangeResponse),
    }
}

/// `Compare.CompareResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CompareResult {
    /// Equal.
    Equal = 0,
    /// The stored one is greater.
    Greater = 1,
    /// The stored one is less.
    Less = 2,
    /// Not equal.
    NotEqual = 3,
}

/// `Compare.CompareTarget` with its operand.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum CompareTarget {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub(crate) result: i32,
    /// The number of the operand's kind: 0 version, 1 create revision, 2 mod revision, 3 value.
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "CompareTarget", tags = "4, 5, 6, 7")]
    pub(crate) operand: Option<CompareTarget>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

/// If all conditions hold, the first operations, else the others; atomically.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

/// What a transaction did.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

impl Compare {
    /// A condition on one key.
    pub(crate) fn key(key: impl Into<Vec<u8>>, result: CompareResult, operand: CompareTarget) -> Self {
        let target = match operand {
            CompareTarget::Version(_) => 0,
            CompareTarget::Create(_) => 1,
            CompareTarget::Mod(_) => 2,
            CompareTarget::Value(_) => 3,
        };
        Self {
            result: result.into(),
            target,
            key: key.into(),
            operand: Some(operand),
            range_end: Vec::new(),
        }
    }

    /// The same condition on all keys from `key` to before `end`; true if there are none.
    pub(crate) fn to(mut self, end: Vec<u8>) -> Self {
        self.range_end = end;
        self
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(op: RangeRequest) -> Self {
        Self {
            op: Some(op::Op::Range(op)),
        }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(op: PutRequest) -> Self {
        Self {
            op: Some(op::Op::Put(op)),
        }
    }
}

impl From<DeleteRangeRequest> for RequestOp {
    fn from(op: DeleteRangeRequest) -> Self {
        Self {
            op: Some(op::Op::Delete(op)),
        }
    }
}

impl TxnResponse {
    /// The keys that the operation at this index read; none if it was not a read.
    pub(crate) fn range(&self, index: usize) -> &[KeyValue] {
        match self.responses.get(index).and_then(|r| r.reply.as_ref()) {
            Some(reply::Reply::Range(range)) => &range.kvs,
            _ => &[],
        }
    }

    /// How many keys there are in the range of the read at this index, whatever its limit.
    pub(crate) fn count(&self, index: usize) -> i64 {
        match self.responses.get(index).and_then(|r| r.reply.as_ref()) {
            Some(reply::Reply::Range(range)) => range.count,
            _ => 0,
        }
    }

    /// How many keys the operation at this index deleted.
    pub(crate) fn deleted(&self, index: usize) -> i64 {
        match self.responses.get(index).and_then(|r| r.reply.as_ref()) {
            Some(reply::Reply::Delete(delete)) => delete.deleted,
            _ => 0,
        }
    }

    /// The store's revision at which the transaction was applied.
    pub(crate) fn revision(&self) -> i64 {
        self.header.map_or(0, |h| h.revision)
    }
}
