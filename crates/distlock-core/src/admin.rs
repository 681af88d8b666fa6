//! Looking at locks and breaking them, through a client.

use std::time::SystemTime;

use futures_util::stream::{self, BoxStream, StreamExt};

use crate::client::Client;
use crate::driver::{Break, DriverError, Finding, Holder, Inspect, LockInfo};
use crate::error::{Error, ErrorKind};
use crate::key::{IntoKey, Key};
use crate::settings::at_most;

impl Client {
    fn inspector(&self) -> Result<&dyn Inspect, Error> {
        self.0.check_open()?;
        self.0.driver.inspect().ok_or_else(|| {
            self.name(
                Error::new(ErrorKind::Unsupported, "this engine cannot list or break locks"),
                None,
            )
        })
    }

    fn name(&self, e: Error, key: Option<&Key>) -> Error {
        let e = e.with_engine(self.0.observe.engine());
        key.into_iter().fold(e, Error::with_key)
    }

    fn asked<T>(&self, answer: Result<T, DriverError>, key: Option<&Key>) -> Result<T, Error> {
        answer.map_err(|e| self.name(Error::from_driver(e), key))
    }

    /// Who holds a lock and who waits for it, in order. For people; never decide by it who holds.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], [`ErrorKind::InvalidKey`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn inspect(&self, key: impl IntoKey) -> Result<LockInfo, Error> {
        let key = key.into_key()?;
        self.inspector()?;
        let client = self.clone();
        let asked = key.clone();
        let answer = self.0.on_runtime(async move {
            client
                .inspector()?
                .inspect(&asked)
                .await
                .map_err(Error::from_driver)
        });
        answer.await?.map_err(|e| self.name(e, Some(&key)))
    }

    /// The locks in use whose keys start with `prefix`, in key order, strictly after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, Error> {
        self.inspector()?;
        let (client, prefix, after) = (self.clone(), prefix.to_owned(), after.cloned());
        let answer = self.0.on_runtime(async move {
            client
                .inspector()?
                .list(&prefix, after.as_ref(), limit)
                .await
                .map_err(Error::from_driver)
        });
        answer.await?.map_err(|e| self.name(e, None))
    }

    /// Takes a lock away from its holders, who are told within a second; returns those. During the grace nobody is
    /// granted the lock. What protects the data is the token, since a holder may be stopped meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] when [`Break::expect`] is not the present holder's token;
    /// [`ErrorKind::InvalidConfig`] for a grace of more than 366 days; [`ErrorKind::Unsupported`],
    /// [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    /// Safe: the lock may have been broken.
    pub async fn break_lock(&self, key: impl IntoKey, how: Break) -> Result<Vec<Holder>, Error> {
        let key = key.into_key()?;
        self.inspector()?;
        at_most("grace", how.grace).map_err(|e| self.name(e, Some(&key)))?;
        let (client, asked) = (self.clone(), key.clone());
        let answer = self.0.on_runtime(async move {
            client
                .inspector()?
                .break_lock(&asked, &how)
                .await
                .map_err(Error::from_driver)
        });
        answer.await?.map_err(|e| self.name(e, Some(&key)))
    }

    /// The states of a lock from now on, one at each change.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], [`ErrorKind::InvalidKey`]; each item [`ErrorKind::Unavailable`].
    pub fn watch(&self, key: impl IntoKey) -> Result<BoxStream<'static, Result<LockInfo, Error>>, Error> {
        let key = key.into_key()?;
        self.inspector()?;
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let client = self.clone();
        self.0.engine.spawn(async move {
            let Some(inspector) = client.0.driver.inspect() else {
                return;
            };
            let mut states = inspector.watch(&key, client.clock());
            while let Some(state) = states.next().await {
                let state = client.asked(state, Some(&key));
                if sender.send(state).await.is_err() {
                    return;
                }
            }
        });
        Ok(stream::unfold(
            receiver,
            |mut r| async move { r.recv().await.map(|state| (state, r)) },
        )
        .boxed())
    }

    /// Examines the deployment for settings that endanger locks; the worst comes first. What using it tells is
    /// [`doctor::probe`](crate::doctor::probe).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn doctor(&self) -> Result<Vec<Finding>, Error> {
        self.inspector()?;
        let client = self.clone();
        let answer = self
            .0
            .on_runtime(async move { client.inspector()?.doctor().await.map_err(Error::from_driver) });
        let mut found = answer.await?.map_err(|e| self.name(e, None))?;
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Ok(found)
    }

    /// The wall clock of the engine's server, where it has one that can be asked.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn engine_time(&self) -> Result<Option<SystemTime>, Error> {
        self.0.check_open()?;
        let client = self.clone();
        let answer = self.0.on_runtime(async move {
            match client.0.driver.inspect() {
                Some(inspector) => inspector.time().await.map_err(Error::from_driver),
                None => Ok(None),
            }
        });
        answer.await?.map_err(|e| self.name(e, None))
    }
}
