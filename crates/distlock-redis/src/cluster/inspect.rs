//! Looking at the locks of a cluster.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use distlock_core::Key;
use distlock_core::driver::{Break, DriverError, Finding, Holder, Inspect, LockInfo};
use futures_util::future::join_all;

use super::course::Course;
use super::node::Node;
use super::{Cluster, doctor};
use crate::slot::slot;

impl Cluster {
    fn masters(&self) -> Vec<Arc<Node>> {
        self.topology.map().masters().to_vec()
    }
}

#[async_trait]
impl Inspect for Cluster {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let masters = self.masters();
        let pages = masters.iter().map(|node| node.driver.list(prefix, after, limit));
        let mut all = Vec::new();
        for page in join_all(pages).await {
            all.extend(page?);
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        // A slot that moves meanwhile may be seen twice.
        all.dedup_by(|a, b| a.key == b.key);
        all.truncate(limit);
        Ok(all)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let (stored, mut course) = (self.stored(key), Course::default());
        loop {
            let node = self.topology.serving(slot(&stored))?;
            match Inspect::inspect(&node.driver, key).await {
                Err(e) => course.after(self, &node, e).await?,
                info => return info,
            }
        }
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let (stored, mut course) = (self.stored(key), Course::default());
        loop {
            let node = self.topology.serving(slot(&stored))?;
            match node.driver.break_lock(key, how).await {
                Err(e) => course.after(self, &node, e).await?,
                broken => return broken,
            }
        }
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        Ok(doctor::examine(self).await)
    }

    /// The clock of the first master that answers.
    async fn time(&self) -> Result<Option<SystemTime>, DriverError> {
        let mut trouble = None;
        for node in self.masters() {
            match node.driver.time().await {
                Ok(time) => return Ok(time),
                Err(e) => trouble = Some(e),
            }
        }
        trouble.map_or(Ok(None), Err)
    }
}
