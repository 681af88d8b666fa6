//! TLS with rustls and the ring provider, for both drivers.

use std::path::Path;

use distlock_core::driver::DriverError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{Tls, invalid};

fn unreadable(path: &Path, e: impl std::fmt::Display) -> DriverError {
    invalid(format!("cannot use {}: {e}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, DriverError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| unreadable(path, e))
}

/// A client configuration: the named roots, or the platform's; our own certificate if there is one.
pub(crate) fn client(tls: &Tls) -> Result<rustls::ClientConfig, DriverError> {
    let mut roots = rustls::RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|e| unreadable(path, e))?;
            }
        }
        None => {
            let native = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(native.certs);
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| invalid(format!("TLS: {e}")))?
        .with_root_certificates(roots);
    match (&tls.cert, &tls.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => {
            let private = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, e))?;
            builder
                .with_client_auth_cert(certificates(cert)?, private)
                .map_err(|e| unreadable(cert, e))
        }
        _ => Err(invalid("cert and key belong together".into())),
    }
}
