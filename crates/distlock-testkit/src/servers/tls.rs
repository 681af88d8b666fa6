//! Certificates for one server, made for the occasion.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::program::StartError;
use super::setup::unprivileged;

/// A certificate authority of one's own, a server certificate for `localhost` and `127.0.0.1`, and a client
/// certificate, as PEM files that go with this value.
#[derive(Debug)]
pub struct Certificates(TempDir);

impl Certificates {
    /// Makes them.
    ///
    /// # Errors
    /// When keys cannot be made or files not written.
    pub fn new() -> io::Result<Self> {
        let dir = TempDir::with_prefix("distlock-tls-")?;
        let mut ca = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name
            .push(DnType::CommonName, "distlock test authority");
        let ca_key = KeyPair::generate().map_err(io::Error::other)?;
        let ca_cert = ca.self_signed(&ca_key).map_err(io::Error::other)?;
        fs::write(dir.path().join("ca.pem"), ca_cert.pem())?;
        let issuer = Issuer::new(ca, ca_key);
        for (who, names) in [
            ("server", vec!["localhost", "127.0.0.1"]),
            ("client", vec!["client"]),
        ] {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let key = KeyPair::generate().map_err(io::Error::other)?;
            let cert = CertificateParams::new(names)
                .and_then(|params| params.signed_by(&key, &issuer))
                .map_err(io::Error::other)?;
            fs::write(dir.path().join(format!("{who}.pem")), cert.pem())?;
            fs::write(dir.path().join(format!("{who}.key")), key.serialize_pem())?;
        }
        Ok(Self(dir))
    }

    /// Gives the files to the system user of a server that refuses to be root; nothing to do unless we are root.
    ///
    /// # Errors
    /// When there is no such user, or the files cannot be given away.
    pub fn give_to(&self, user: &str) -> Result<(), StartError> {
        let Some((uid, gid)) = unprivileged(&self.0, user)? else {
            return Ok(());
        };
        for entry in fs::read_dir(self.0.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "key") {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            }
            chown(&path, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    /// The authority's certificate, for the clients to trust.
    pub fn ca(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }

    /// The server's certificate.
    pub fn server_cert(&self) -> PathBuf {
        self.0.path().join("server.pem")
    }

    /// The server's key.
    pub fn server_key(&self) -> PathBuf {
        self.0.path().join("server.key")
    }

    /// A client's certificate.
    pub fn client_cert(&self) -> PathBuf {
        self.0.path().join("client.pem")
    }

    /// A client's key.
    pub fn client_key(&self) -> PathBuf {
        self.0.path().join("client.key")
    }
}
