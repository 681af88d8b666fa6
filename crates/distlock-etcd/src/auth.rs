//! Signing in with a name and a password.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::wire::{self, AuthenticateRequest};

/// An account and its present token.
pub(crate) struct Auth {
    account: AuthenticateRequest,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    /// One at a time signs in; the others use its token.
    signing_in: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("user", &self.account.name)
            .finish_non_exhaustive()
    }
}

impl Auth {
    pub(crate) fn new(name: String, password: String) -> Self {
        Self {
            account: AuthenticateRequest { name, password },
            token: Mutex::default(),
            signing_in: tokio::sync::Mutex::default(),
        }
    }

    /// The token, after signing in if there is none.
    pub(crate) async fn token(&self, channel: Channel) -> Result<MetadataValue<Ascii>, Status> {
        if let Some(token) = &*self.lock() {
            return Ok(token.clone());
        }
        let _one = self.signing_in.lock().await;
        if let Some(token) = &*self.lock() {
            return Ok(token.clone());
        }
        let reply = wire::unary(channel, Request::new(self.account.clone())).await?;
        let token = MetadataValue::try_from(reply.token)
            .map_err(|_| Status::internal("the server's token is not text"))?;
        *self.lock() = Some(token.clone());
        Ok(token)
    }

    /// The server no longer accepts the token.
    pub(crate) fn forget(&self) {
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
