//! The names of keys and channels. All of one lock's are in one hash slot of a cluster.

use uuid::Uuid;

use crate::slot::tag;

/// The keys and channels that belong to the lock with this name; Redisson's unless said otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a>(pub(crate) &'a str);

impl Names<'_> {
    /// `prefix:{name}`; a name with a brace is taken to have a hash tag already.
    fn before(self, prefix: &str) -> String {
        let Names(name) = self;
        if name.contains('{') {
            [prefix, ":", name].concat()
        } else {
            [prefix, ":{", name, "}"].concat()
        }
    }

    /// `{name}:suffix`, by the same rule.
    fn after(self, suffix: &str) -> String {
        let Names(name) = self;
        if name.contains('{') {
            [name, ":", suffix].concat()
        } else {
            ["{", name, "}:", suffix].concat()
        }
    }

    pub(crate) fn mutex_channel(self) -> String {
        self.before("redisson_lock__channel")
    }

    /// The channel of one waiter of the fair lock.
    pub(crate) fn fair_channel(self, owner: &str) -> String {
        format!("{}:{owner}", self.mutex_channel())
    }

    pub(crate) fn queue(self) -> String {
        self.before("redisson_lock_queue")
    }

    pub(crate) fn deadlines(self) -> String {
        self.before("redisson_lock_timeout")
    }

    pub(crate) fn fence(self) -> String {
        self.before("redisson_lock_token")
    }

    pub(crate) fn rw_channel(self) -> String {
        self.before("redisson_rwlock")
    }

    /// What the names of all readers' lives start with.
    pub(crate) fn lives(self) -> String {
        self.after("")
    }

    /// The key that lives as long as one reader's share.
    pub(crate) fn life(self, owner: &str) -> String {
        self.after(&format!("{owner}:rwlock_timeout:1"))
    }

    pub(crate) fn slot_channel(self) -> String {
        self.before("redisson_sc")
    }

    pub(crate) fn leases(self) -> String {
        self.after("timeout")
    }

    /// Ours: the last token and the last exclusive holder's description.
    pub(crate) fn record(self) -> String {
        self.after("distlock")
    }

    /// Ours: which of our waiters looked when.
    pub(crate) fn seen(self) -> String {
        self.after("distlock:line")
    }

    /// Ours: the line of a shared lock.
    pub(crate) fn line(self) -> String {
        self.after("distlock:shared")
    }

    /// Ours: which waiter of that line looked when.
    pub(crate) fn line_seen(self) -> String {
        self.after("distlock:shared:seen")
    }

    /// Ours: the descriptions of those who share.
    pub(crate) fn people(self) -> String {
        self.after("distlock:people")
    }

    /// Ours: why the lock was last broken.
    pub(crate) fn broken(self) -> String {
        self.after("distlock:broken")
    }

    /// Ours: the largest token that wrote the data of this name.
    pub(crate) fn gate(self) -> String {
        self.after("fence")
    }

    /// Ours: the channel of the string layout.
    pub(crate) fn string_channel(self) -> String {
        self.before("distlock_channel")
    }

    /// Whether the name and all that belongs to it have the same hash tag. One with a brace is taken to have a tag; if
    /// it has none after all, its parts are elsewhere.
    pub(crate) fn are_in_one_slot(self) -> bool {
        tag(self.0) == tag(&self.record()) && tag(self.0) == tag(&self.queue())
    }

    /// Whether a key that was found by its prefix is not a lock but belongs to one.
    pub(crate) fn is_part(key: &str) -> bool {
        key.contains('{')
            && (key.ends_with(":distlock")
                || key.contains(":distlock:")
                || key.ends_with(":timeout")
                || key.contains(":rwlock_timeout:"))
    }
}

/// Since when a server of a quorum has its data, in ms; 0 if somebody vouched for it. One for all namespaces.
pub(crate) const STAMP: &str = "distlock_born";

/// The channel on which a client is told which of its locks were broken.
pub(crate) fn client_channel(client: Uuid) -> String {
    format!("distlock_client:{client}")
}

/// A semaphore's permit: 16 bytes, unique for the owner and reversible by its client.
pub(crate) fn permit(owner: distlock_core::OwnerId) -> [u8; 16] {
    (owner.client.as_u128() ^ u128::from(owner.n)).to_be_bytes()
}

/// The same in 32 digits: how a plain string names its owner with `value=hex`.
pub(crate) fn hex(owner: distlock_core::OwnerId) -> String {
    format!("{:032x}", u128::from_be_bytes(permit(owner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_hash_tags_are_seen() {
        for good in ["orders:42", "user:{42}:lock", "{a}", "a}{b}"] {
            assert!(Names(good).are_in_one_slot(), "{good}");
        }
        for bad in ["a{b", "a}b", "{}", "}{", "{}{a}"] {
            assert!(!Names(bad).are_in_one_slot(), "{bad}");
        }
    }

    #[test]
    fn names_are_redissons() {
        let n = Names("orders:42");
        assert_eq!(n.mutex_channel(), "redisson_lock__channel:{orders:42}");
        assert_eq!(n.queue(), "redisson_lock_queue:{orders:42}");
        assert_eq!(n.life("u:1"), "{orders:42}:u:1:rwlock_timeout:1");
        assert_eq!(n.leases(), "{orders:42}:timeout");
        assert_eq!(n.record(), "{orders:42}:distlock");
        let tagged = Names("user:{42}:lock");
        assert_eq!(tagged.mutex_channel(), "redisson_lock__channel:user:{42}:lock");
        assert_eq!(tagged.record(), "user:{42}:lock:distlock");
    }
}
