//! The certificates of a server, in a directory, under the names that QEMU and libnbd use.

use std::path::Path;
use std::sync::Arc;

use braid_array::Refusal;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
/// Certificate of the authority that signs the clients' certificates.
const CLIENTS: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";

/// Returns whether clients have to show a certificate: the directory then has the authority's.
#[must_use]
pub fn asks_clients(dir: &Path) -> bool {
    dir.join(CLIENTS).exists()
}

/// Reads certificate and key of a server for TLS. Where the directory has a `ca-cert.pem`, clients
/// have to show a certificate signed by that.
///
/// # Errors
/// When a file is missing, cannot be read, or does not fit.
pub(crate) fn load(dir: &Path) -> Result<Arc<ServerConfig>, Refusal> {
    let certificates = certificates(&dir.join(CERTIFICATE))?;
    let key = dir.join(KEY);
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| unread(&key, "key", &error))?;
    if dir.join(REVOKED).exists() {
        let reason = format!("{}: lists of what is revoked are not heeded", dir.display());
        let next = "take ca-crl.pem away, and sign by a new ca-cert.pem who is still to come in";
        return Err(Refusal::new(reason, next));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3");
    let builder = if asks_clients(dir) {
        let path = dir.join(CLIENTS);
        let mut roots = RootCertStore::empty();
        for certificate in self::certificates(&path)? {
            roots.add(certificate).map_err(|error| unfit(&path, &error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
        builder.with_client_cert_verifier(verifier.map_err(|error| unfit(&path, &error))?)
    } else {
        builder.with_no_client_auth()
    };
    let config = builder.with_single_cert(certificates, key);
    Ok(Arc::new(config.map_err(|error| unfit(&dir.join(CERTIFICATE), &error))?))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    let what = "certificate";
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| unread(path, what, &error))?;
    if all.is_empty() { Err(unread(path, what, &Error::NoItemsFound)) } else { Ok(all) }
}

fn unread(path: &Path, what: &str, error: &Error) -> Refusal {
    let why = match error {
        Error::NoItemsFound => format!("has no {what} in it"),
        Error::Io(error) => crate::system::describe(error),
        error => format!("cannot be read as PEM: {error}"),
    };
    let next = "tls=DIR needs server-cert.pem and server-key.pem there, and ca-cert.pem if clients \
                are to show certificates";
    Refusal::new(format!("{}: {why}", path.display()), next)
}

fn unfit(path: &Path, error: &dyn std::error::Error) -> Refusal {
    let next = "make key and certificates anew: docs/exports.md says how";
    Refusal::new(format!("{}: {error}", path.display()), next)
}
