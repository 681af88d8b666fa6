//! Owners as strangers may see them.
//!
//! Whoever knows an owner can write a lease handle. So what is shown is a digest: equal owners look equal, and a
//! client that knows its own identity recognises itself.

use distlock_core::OwnerId;
use sha2::{Digest, Sha256};

/// The owner with the identifying part as a digest.
pub(crate) fn masked(owner: &str) -> String {
    match owner.parse::<OwnerId>() {
        Ok(id) => format!("{}:{}", digest(id.client.to_string().as_bytes()), id.n),
        Err(_) if owner.is_empty() => String::new(),
        Err(_) => digest(owner.as_bytes()),
    }
}

/// The first 16 hexadecimal digits of the SHA-256.
fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_tells_owners_apart_and_reveals_none() {
        let owner = distlock_core::Owners::new().next();
        let shown = masked(&owner.to_string());
        assert!(!shown.contains(&owner.client.to_string()));
        assert_eq!(shown, masked(&owner.to_string()));
        assert!(shown.ends_with(&format!(":{}", owner.n)));
        assert_ne!(shown, masked("a foreign owner"));
    }
}
