//! One protected ephemeral sequential node of a contender: made once, found again, left for certain.

use std::sync::Arc;

use distlock_core::driver::{DriverError, Reached, Refusal};
use futures_util::future::{join, join_all};
use tracing::warn;
use uuid::Uuid;
use zookeeper_client::{Acls, CreateMode, CreateOptions, Error, MultiWriteResult, Stat};

use crate::call::{Call, fault, flat, is_answer};
use crate::config::Acl;
use crate::node::{Label, Node, SEQUENCE_END, SEQUENCE_WARNING, line, prefix};
use crate::session::Session;

/// How often one look may find that the line's parent or its own node has just gone.
const RETRIES: u32 = 8;

#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) dir: String,
    label: Label,
    /// With a second node in kazoo's line, made and left together with the first: so the two lines have us in the same
    /// order, and those who stand in both never wait for each other.
    kazoo: bool,
    data: Vec<u8>,
    acl: Acl,
    /// In the node's name; by it a node is found whose create was not answered. A new one for each session, so that
    /// a node of a session that is about to end is never taken for the present one.
    id: Uuid,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Nowhere,
    /// A create was sent; nobody knows.
    Unsure(Arc<Session>),
    At(At),
}

/// A node that is ours.
#[derive(Debug, Clone)]
pub(crate) struct At {
    pub(crate) session: Arc<Session>,
    pub(crate) name: String,
    /// The second one, in kazoo's line.
    pub(crate) kazoo: Option<String>,
    pub(crate) czxid: u64,
}

impl At {
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        [&self.name].into_iter().chain(&self.kazoo)
    }
}

/// What was made.
struct Made {
    name: String,
    kazoo: Option<String>,
    sequence: i64,
    stat: Stat,
}

/// The line, and where in it the seat is.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) line: Vec<Node>,
    pub(crate) me: usize,
    pub(crate) children: Vec<String>,
    pub(crate) at: At,
}

fn acls(acl: Acl) -> Acls<'static> {
    match acl {
        Acl::Open => Acls::anyone_all(),
        Acl::Creator => Acls::creator_all(),
    }
}

/// Makes a lock's parents as Curator does: containers, which the servers remove some time after they were last used.
pub(crate) fn container(acl: Acl) -> CreateOptions<'static> {
    CreateMode::Container.with_acls(acls(acl))
}

/// What stays, for the records of a gate.
pub(crate) fn lasting(acl: Acl) -> CreateOptions<'static> {
    CreateMode::Persistent.with_acls(acls(acl))
}

pub(crate) fn ephemeral(acl: Acl) -> CreateOptions<'static> {
    CreateMode::Ephemeral.with_acls(acls(acl))
}

impl Seat {
    pub(crate) fn new(dir: String, label: Label, data: Vec<u8>, acl: Acl) -> Self {
        Self {
            dir,
            label,
            kazoo: false,
            data,
            acl,
            id: Uuid::new_v4(),
            place: Place::Nowhere,
        }
    }

    pub(crate) fn with_kazoo(mut self) -> Self {
        self.kazoo = true;
        self
    }

    /// Whether there is, or may be, a node of ours in this session.
    pub(crate) fn is_taken_in(&self, session: &Arc<Session>) -> bool {
        match &self.place {
            Place::Nowhere => false,
            Place::Unsure(of) | Place::At(At { session: of, .. }) => Arc::ptr_eq(of, session),
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// Takes a place in this session or finds the one that it has, and lists the line. One round trip when the parent
    /// exists: create and list are sent together, and a session's requests are executed in order.
    pub(crate) async fn sit(&mut self, session: &Arc<Session>) -> Result<Sight, DriverError> {
        for _ in 0..RETRIES {
            let children = match &self.place {
                Place::Unsure(of) | Place::At(At { session: of, .. }) if !Arc::ptr_eq(of, session) => {
                    self.stand_up();
                    continue;
                }
                Place::Nowhere => self.join_line(session).await?,
                Place::Unsure(_) => self.find(session).await?,
                Place::At(_) => self.list(session).await?,
            };
            let (Some(children), Place::At(at)) = (children, &self.place) else {
                continue;
            };
            let line = line(&children);
            match line.iter().position(|node| node.name == at.name) {
                Some(me) if at.names().all(|name| children.contains(name)) => {
                    return Ok(Sight {
                        line,
                        me,
                        children,
                        at: at.clone(),
                    });
                }
                // Somebody deleted it, or one of two: a waiter queues again.
                _ if self.kazoo => drop(self.leave().await?),
                _ => self.stand_up(),
            }
        }
        let why = format!("the nodes under {} go as fast as they are made", self.dir);
        Err(DriverError::unavailable(Reached::No, why))
    }

    fn stand_up(&mut self) {
        self.place = Place::Nowhere;
        self.id = Uuid::new_v4();
    }

    /// Makes the node, or both.
    async fn make(&self, call: &Call) -> Result<Made, Error> {
        let options = CreateMode::EphemeralSequential.with_acls(acls(self.acl));
        let (prefix, path) = (
            prefix(self.id, self.label),
            self.path(&prefix(self.id, self.label)),
        );
        if !self.kazoo {
            let create = call.client.create(&path, &self.data, &options);
            let (stat, sequence) = call.answer(create).await?;
            return Ok(Made {
                name: format!("{prefix}{sequence}"),
                kazoo: None,
                sequence: sequence.into_i64(),
                stat,
            });
        }
        let mut both = call.client.new_multi_writer();
        both.add_create(&path, &self.data, &options)?;
        both.add_create(&self.path(&self.kazoo_prefix()), &self.data, &options)?;
        let made = call.answer(async { both.commit().await.map_err(flat) }).await?;
        let mut names = Vec::new();
        let mut first = None;
        for one in made {
            let MultiWriteResult::Create { path, stat } = one else {
                continue;
            };
            names.push(path.rsplit('/').next().unwrap_or_default().to_owned());
            first.get_or_insert(stat);
        }
        let (Some(name), kazoo) = (names.first().cloned(), names.pop()) else {
            return Err(Error::UnexpectedError("a create without a name".into()));
        };
        // Servers before 3.7.2 and 3.8.2 do not say this in a transaction (ZOOKEEPER-4026, ZOOKEEPER-4667).
        let stat = match first {
            Some(stat) if !stat.is_invalid() => Some(stat),
            _ => call.answer(call.client.check_stat(&self.path(&name))).await?,
        };
        Ok(Made {
            sequence: name[prefix.len()..].parse().unwrap_or(i64::MAX),
            // Deleted already: found out where the line is looked at.
            stat: stat.ok_or(Error::Timeout)?,
            name,
            kazoo,
        })
    }

    fn kazoo_prefix(&self) -> String {
        prefix(self.id, Label::Kazoo)
    }

    async fn join_line(&mut self, session: &Arc<Session>) -> Result<Option<Vec<String>>, DriverError> {
        let call = session.call()?;
        // From here on a node may exist, whatever becomes of this future.
        self.place = Place::Unsure(session.clone());
        // Sent in this order.
        let list = async { call.answer(call.client.list_children(&self.dir)).await };
        let (made, children) = join(self.make(&call), list).await;
        let Made {
            name,
            kazoo,
            sequence,
            stat,
        } = match made {
            Ok(made) => made,
            Err(Error::NoNode) => {
                self.place = Place::Nowhere;
                call.answer(call.client.mkdir(&self.dir, &container(self.acl)))
                    .await
                    .map_err(fault)?;
                return Ok(None);
            }
            Err(e) => {
                if is_answer(&e) {
                    self.place = Place::Nowhere;
                }
                return Err(fault(e));
            }
        };
        self.settle(session, name, kazoo, &stat)?;
        if !(0..SEQUENCE_END).contains(&sequence) {
            self.leave().await?;
            let why = format!(
                "the sequence numbers under {} are used up ({sequence} of 2147483647): delete that node while nobody \
                 uses the lock",
                self.dir
            );
            return Err(DriverError::refused(Refusal::Unsupported(why)));
        }
        if sequence >= SEQUENCE_WARNING {
            warn!(target: "distlock", dir = self.dir, %sequence,
                "more than half of the lock's sequence numbers are used; delete its node while it is idle");
        }
        match children {
            Ok(children) => Ok(Some(children)),
            Err(Error::NoNode) => Ok(None),
            Err(e) => Err(fault(e)),
        }
    }

    /// The node was made, or found: is it this session's?
    fn settle(
        &mut self,
        session: &Arc<Session>,
        name: String,
        kazoo: Option<String>,
        stat: &Stat,
    ) -> Result<(), DriverError> {
        if stat.ephemeral_owner != session.id() {
            // The server gave us another session than the one that we think we have: nothing is certain in it.
            session.end();
            return Err(DriverError::unavailable(
                Reached::Maybe,
                "the servers changed the session",
            ));
        }
        let czxid = stat.czxid.unsigned_abs();
        self.place = Place::At(At {
            session: session.clone(),
            name,
            kazoo,
            czxid,
        });
        Ok(())
    }

    /// Looks for a node whose create was not answered. Everything that this session sent before has been executed or
    /// never will be when the answers are here; `sync` makes a server that we have just moved to know of it.
    async fn find(&mut self, session: &Arc<Session>) -> Result<Option<Vec<String>>, DriverError> {
        let call = session.call()?;
        let sync = call.answer(call.client.sync(&self.dir));
        let list = call.answer(call.client.list_children(&self.dir));
        let (synced, children) = join(sync, list).await;
        synced.map_err(fault)?;
        let children = match children {
            Err(Error::NoNode) => Vec::new(),
            other => other.map_err(fault)?,
        };
        let prefix = prefix(self.id, self.label);
        let second = self.kazoo_prefix();
        let kazoo = children.iter().find(|name| name.starts_with(&second)).cloned();
        let Some(name) = children.iter().find(|name| name.starts_with(&prefix)) else {
            self.place = match kazoo {
                None => Place::Nowhere,
                // Somebody deleted the first: this one is left where the line is looked at.
                kazoo => Place::At(At {
                    session: session.clone(),
                    name: prefix,
                    kazoo,
                    czxid: 0,
                }),
            };
            return Ok(None);
        };
        let path = self.path(name);
        match call.answer(call.client.check_stat(&path)).await.map_err(fault)? {
            Some(stat) => {
                // One that is missing was deleted, which is seen where the line is looked at.
                let kazoo = self.kazoo.then(|| kazoo.unwrap_or(second));
                self.settle(session, name.clone(), kazoo, &stat)?;
            }
            None => self.stand_up(),
        }
        Ok(Some(children))
    }

    async fn list(&mut self, session: &Arc<Session>) -> Result<Option<Vec<String>>, DriverError> {
        let call = session.call()?;
        match call.answer(call.client.list_children(&self.dir)).await {
            Err(Error::NoNode) => {
                self.stand_up();
                Ok(None)
            }
            other => Ok(Some(other.map_err(fault)?)),
        }
    }

    /// Leaves the line: whether there was a node of ours. An error means that nobody knows; call again.
    pub(crate) async fn leave(&mut self) -> Result<bool, DriverError> {
        let (session, at) = match &self.place {
            Place::Nowhere => return Ok(false),
            Place::Unsure(session) => (session.clone(), None),
            Place::At(at) => (at.session.clone(), Some(at.clone())),
        };
        let call = match session.call() {
            Ok(call) => call,
            // Its nodes are gone, or go with it.
            Err(_) if session.has_ended() => {
                self.stand_up();
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        let at = match at {
            Some(at) => at,
            None => {
                self.find(&session).await?;
                match &self.place {
                    Place::At(at) => at.clone(),
                    _ => return Ok(false),
                }
            }
        };
        let delete = async |name: &String| match call.answer(call.client.delete(&self.path(name), None)).await
        {
            Ok(()) => Ok(true),
            Err(Error::NoNode | Error::SessionExpired | Error::ClientClosed) => Ok(false),
            Err(e) => Err(fault(e)),
        };
        let deleted = join_all(at.names().map(delete)).await;
        let deleted = deleted.into_iter().collect::<Result<Vec<bool>, _>>()?;
        // Both were there, or it was lost.
        let deleted = deleted.into_iter().all(|deleted| deleted);
        self.stand_up();
        Ok(deleted)
    }

    /// Gives the node away, to be deleted by someone else.
    pub(crate) fn hand_over(&mut self) -> Option<(Arc<Session>, String)> {
        let Place::At(at) = &self.place else { return None };
        let handed = (at.session.clone(), self.path(&at.name));
        self.stand_up();
        Some(handed)
    }
}
