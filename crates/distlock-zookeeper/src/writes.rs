//! Writes that are applied together.

use zookeeper_client::{Acls, CreateMode, Error, MultiWriter};

/// Writes to ZooKeeper that a [`Multi`](crate::Multi) or a [`ZooKeeperGate`](crate::ZooKeeperGate) applies together, or not
/// at all. Paths are those below the client's chroot.
///
/// ```
/// use distlock_zookeeper::Writes;
///
/// let writes = Writes::new().set("/accounts/42/balance", "100", None).delete("/accounts/42/pending", None);
/// # let _ = writes;
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is written until a multi or a gate is given these"]
pub struct Writes(Vec<Write>);

#[derive(Debug, Clone)]
enum Write {
    Create(String, Vec<u8>),
    Set(String, Vec<u8>, Option<i32>),
    Delete(String, Option<i32>),
}

impl Writes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a persistent node that everybody may use.
    pub fn create(mut self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        self.0.push(Write::Create(path.to_owned(), data.into()));
        self
    }

    /// Writes a node's data; with a version only if it still has that one.
    pub fn set(mut self, path: &str, data: impl Into<Vec<u8>>, version: Option<i32>) -> Self {
        self.0.push(Write::Set(path.to_owned(), data.into(), version));
        self
    }

    /// Deletes a node; with a version only if it still has that one.
    pub fn delete(mut self, path: &str, version: Option<i32>) -> Self {
        self.0.push(Write::Delete(path.to_owned(), version));
        self
    }

    /// Adds them to a request; the number of the one that cannot be sent, if there is one.
    pub(crate) fn add_to(&self, multi: &mut MultiWriter<'_>, chroot: &str) -> Result<(), (usize, Error)> {
        for (index, write) in self.0.iter().enumerate() {
            match write {
                Write::Create(path, data) => {
                    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
                    multi.add_create(&format!("{chroot}{path}"), data, &options)
                }
                Write::Set(path, data, version) => {
                    multi.add_set_data(&format!("{chroot}{path}"), data, *version)
                }
                Write::Delete(path, version) => multi.add_delete(&format!("{chroot}{path}"), *version),
            }
            .map_err(|e| (index, e))?;
        }
        Ok(())
    }
}
