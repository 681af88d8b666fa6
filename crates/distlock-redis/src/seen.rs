//! What the `look` script saw of one lock, read into the core's words.

use std::collections::HashMap;
use std::time::Duration;

use distlock_core::driver::{DriverError, Holder, Kind, LockInfo, Mode, Reached};
use distlock_core::{FencingToken, Key};
use redis::{FromRedisValue, Value};
use uuid::Uuid;

use crate::names::permit;
use crate::record::{Record, holder};

/// The script's answer.
pub(crate) struct Seen {
    kind: String,
    left: i64,
    contents: Vec<Vec<u8>>,
    record: Option<Record>,
    queue: Vec<String>,
    people: HashMap<String, String>,
    leases: Vec<(Vec<u8>, f64)>,
    now: f64,
    readers: Vec<i64>,
}

impl Seen {
    pub(crate) fn read(answer: Value) -> Result<Self, DriverError> {
        let parse = |answer| -> redis::RedisResult<_> {
            type Words = (
                String,
                i64,
                Vec<Vec<u8>>,
                String,
                Vec<String>,
                Value,
                Vec<Vec<u8>>,
                f64,
                Vec<i64>,
            );
            let (kind, left, contents, record, queue, people, leases, now, readers) =
                Words::from_redis_value(answer)?;
            let people = Vec::<String>::from_redis_value(people)?;
            let mut pairs = people.into_iter();
            let mut people = HashMap::new();
            while let (Some(owner), Some(about)) = (pairs.next(), pairs.next()) {
                people.insert(owner, about);
            }
            let end = |bytes: &[u8]| {
                std::str::from_utf8(bytes)
                    .ok()
                    .and_then(|t| t.parse().ok())
                    .unwrap_or(0.0)
            };
            Ok(Self {
                kind,
                left,
                contents,
                record: Record::parse(&record),
                queue,
                people,
                leases: leases
                    .chunks_exact(2)
                    .map(|pair| (pair[0].clone(), end(&pair[1])))
                    .collect(),
                now,
                readers,
            })
        };
        parse(answer).map_err(|e| DriverError::unavailable(Reached::Yes, format!("not understood: {e}")))
    }

    /// Whether the key is a lock of the layout, or free.
    pub(crate) fn is_lock(&self, string_layout: bool) -> bool {
        match self.kind.as_str() {
            "none" => true,
            "string" => string_layout || self.permits().is_some(),
            "hash" => !string_layout && self.fields().all(|(field, _, _)| is_owner(&field)),
            _ => false,
        }
    }

    /// The lock for people.
    pub(crate) fn info(&self, key: Key, client: Uuid, string_layout: bool) -> LockInfo {
        let mut info = LockInfo::free(key);
        info.token = self.record.as_ref().map(|r| FencingToken::new(r.number));
        let expires = |ms: i64| u64::try_from(ms).ok().map(Duration::from_millis);
        match self.kind.as_str() {
            "hash" => {
                let mode = self
                    .contents
                    .chunks_exact(2)
                    .find(|pair| pair[0] == b"mode")
                    .map(|_| ());
                info.kind = Some(if mode.is_some() {
                    Kind::ReadWrite
                } else {
                    Kind::Mutex
                });
                for (field, life, _) in self.fields() {
                    let mode = match info.kind {
                        Some(Kind::Mutex) => Mode::Mutex,
                        _ if field.ends_with(":write") => Mode::Write,
                        _ => Mode::Read,
                    };
                    if mode == Mode::Read && life < 0 {
                        continue;
                    }
                    let person = self.people.get(&field).and_then(|text| Record::parse(text));
                    let record = if mode == Mode::Read {
                        person.as_ref()
                    } else {
                        self.record.as_ref()
                    };
                    let mut holder = holder(client, &field, mode, record);
                    holder.expires_in = expires(if mode == Mode::Read { life } else { self.left });
                    info.holders.push(holder);
                }
            }
            "string" if string_layout => {
                info.kind = Some(Kind::Mutex);
                let value = String::from_utf8_lossy(&self.contents[0]).into_owned();
                info.holders
                    .push(self.plain_holder(&value, client, expires(self.left)));
            }
            "string" => self.permit_holders(&mut info, client),
            _ => {}
        }
        let waits = |owner: &String| {
            let mode = match info.kind {
                Some(Kind::Semaphore { of }) => Mode::Slot { of },
                _ if owner.ends_with(":write") => Mode::Write,
                Some(Kind::ReadWrite) => Mode::Read,
                _ => Mode::Mutex,
            };
            holder(client, owner, mode, None)
        };
        info.waiters = self.queue.iter().map(waits).collect();
        info
    }

    fn plain_holder(&self, value: &str, client: Uuid, expires_in: Option<Duration>) -> Holder {
        let mut holder = holder(client, value, Mode::Mutex, self.record.as_ref());
        holder.expires_in = expires_in;
        holder
    }

    fn permit_holders(&self, info: &mut LockInfo, client: Uuid) {
        let Some(of) = self.permits() else { return };
        info.kind = Some(Kind::Semaphore { of });
        let owners: HashMap<[u8; 16], &str> = self
            .people
            .keys()
            .filter_map(|o| Some((permit(o.parse().ok()?), o.as_str())))
            .collect();
        for (id, end) in &self.leases {
            let left = end - self.now;
            if left <= 0.0 {
                continue;
            }
            let owner = <[u8; 16]>::try_from(&id[..]).ok().and_then(|id| owners.get(&id));
            let mut holder = match owner {
                Some(owner) => {
                    let record = self.people.get(*owner).and_then(|text| Record::parse(text));
                    holder(client, owner, Mode::Slot { of }, record.as_ref())
                }
                None => Holder::new(
                    id.iter().map(|b| format!("{b:02x}")).collect::<String>(),
                    Mode::Slot { of },
                ),
            };
            holder.expires_in = Some(Duration::from_secs_f64(left / 1000.0));
            info.holders.push(holder);
        }
    }

    /// The number of permits, if the string is a count.
    fn permits(&self) -> Option<u32> {
        let free: i64 = std::str::from_utf8(self.contents.first()?).ok()?.parse().ok()?;
        u32::try_from(free + i64::try_from(self.leases.len()).ok()?).ok()
    }

    /// The owners' fields of the hash, with the life of a reader's share, and the count.
    fn fields(&self) -> impl Iterator<Item = (String, i64, &[u8])> {
        let fields = self.contents.chunks_exact(2).zip(self.readers.iter());
        fields.filter(|(pair, _)| pair[0] != b"mode").map(|(pair, life)| {
            (
                String::from_utf8_lossy(&pair[0]).into_owned(),
                *life,
                &pair[1][..],
            )
        })
    }
}

/// Whether the field of a hash is one of Redisson's holders, `<uuid>:<thread>` and perhaps `:write`.
pub(crate) fn is_owner(field: &str) -> bool {
    let field = field.strip_suffix(":write").unwrap_or(field);
    field
        .rsplit_once(':')
        .is_some_and(|(_, n)| n.parse::<i64>().is_ok())
}
