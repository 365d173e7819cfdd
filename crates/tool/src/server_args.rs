//! Where a server of ours listens, and how its clients show that they may come: the same flags for HTTP and for Flight SQL.

use clap::Args;
use std::path::{Path, PathBuf};

#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Listen here; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// File with the token that clients must present
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// Use TLS with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Disable TLS; token and data are sent in clear text
    #[arg(long, conflicts_with = "certificate")]
    pub plain: bool,
}

impl ServerArgs {
    /// Certificate and key, where TLS is wanted.
    pub fn tls(&self) -> Option<(&Path, &Path)> {
        self.certificate.as_deref().zip(self.key.as_deref())
    }
}
