//! A place in an object store, by its URL.

use crate::credentials;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectMeta, ObjectStore, ObjectStoreScheme, RetryConfig, StaticCredentialProvider};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use terrace_tool::failure::{Failure, Result};
use tokio::sync::{Semaphore, SemaphorePermit};
use url::Url;

const SCHEMES: &str = "give s3://BUCKET/PREFIX, gs://, az://, https:// or file://";
/// A request that fails is made again, for so long and so often.
const RETRY_TIME: Duration = Duration::from_secs(60);
const RETRIES: usize = 6;
/// Requests with contents at once, each of at most 16 MiB, and how long one may take: 256 MiB in 5 minutes is less than 1 MiB/s.
const REQUESTS: usize = 16;
const REQUEST_TIME: Duration = Duration::from_secs(300);
const CONNECT_TIME: Duration = Duration::from_secs(10);

pub struct Remote {
    url: String,
    pub store: Arc<dyn ObjectStore>,
    /// Stores whose uploads in parts can be gone on with by another process.
    pub in_parts: Option<Arc<dyn MultipartStore>>,
    pub prefix: Key,
    pub lists: bool,
    /// Azure's lists have tags without the quotes that they have everywhere else.
    lists_bare_tags: bool,
    /// Where credentials and the server's address come from.
    pub access: &'static str,
    /// Turns of requests that carry contents: bounds memory, and what a slow network has to carry in time.
    turns: Semaphore,
}

impl Remote {
    pub fn of(text: &str) -> Result<Remote> {
        let url = Url::parse(text)
            .map_err(|error| Failure::bad_input(format!("{text:?} is no URL of an object store: {error}"), SCHEMES))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(Failure::bad_input(
                format!("{text:?}: a URL with `?` or `#` names no place in an object store"),
                "write %3F and %23 where a key has them; signed URLs are not taken, give credentials by the environment",
            ));
        }
        let (scheme, prefix) = ObjectStoreScheme::parse(&url)
            .map_err(|error| Failure::bad_input(format!("{text:?}: {error}"), SCHEMES))?;
        let access = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                "keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from a profile in ~/.aws (AWS_PROFILE); \
                 AWS_ENDPOINT_URL names a server that is not Amazon's, AWS_SKIP_SIGNATURE=true is for public buckets"
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                "GOOGLE_APPLICATION_CREDENTIALS names the file with the credentials, GOOGLE_SKIP_SIGNATURE=true is for public buckets"
            }
            ObjectStoreScheme::MicrosoftAzure => {
                "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY say who asks, AZURE_SKIP_SIGNATURE=true is for public containers"
            }
            _ => "correct the URL",
        };
        let refused = |error: object_store::Error| Failure::bad_input(format!("{text}: {}", in_words(&error)), access);
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIME, ..RetryConfig::default() };
        let bare = url.as_str();
        let options = ClientOptions::new().with_timeout(REQUEST_TIME).with_connect_timeout(CONNECT_TIME);
        let lists = scheme != ObjectStoreScheme::Http;
        let lists_bare_tags = scheme == ObjectStoreScheme::MicrosoftAzure;
        let (store, in_parts): (Arc<dyn ObjectStore>, Option<Arc<dyn MultipartStore>>) = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                let settings = credentials::aws()?;
                let options = options.with_allow_http(credentials::name_a_plain_server(&settings));
                // What arrives is what was read here, or the store refuses it.
                let mut builder = AmazonS3Builder::new()
                    .with_url(bare)
                    .with_checksum_algorithm(Checksum::SHA256)
                    .with_client_options(options);
                for (name, value) in &settings {
                    // Variables that are not the client's own are others' business.
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let store = Arc::new(builder.with_retry(retry).build().map_err(refused)?);
                (store.clone(), Some(store))
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let (settings, is_emulator) = credentials::google();
                let options = options.with_allow_http(credentials::name_a_plain_server(&settings));
                let mut builder = GoogleCloudStorageBuilder::new().with_url(bare).with_client_options(options);
                for (name, value) in &settings {
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                if is_emulator {
                    // To leave out the signature is not enough: writes ask the machine's own account for a token all the same.
                    let nobody = GcpCredential { bearer: String::new() };
                    builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(nobody)));
                }
                let store = Arc::new(builder.with_retry(retry).build().map_err(refused)?);
                (store.clone(), Some(store))
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let settings = credentials::of_environment("azure_");
                let options = options.with_allow_http(credentials::name_a_plain_server(&settings));
                let mut builder = MicrosoftAzureBuilder::new().with_url(bare).with_client_options(options);
                for (name, value) in &settings {
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let store = Arc::new(builder.with_retry(retry).build().map_err(refused)?);
                (store.clone(), Some(store))
            }
            ObjectStoreScheme::Http => {
                let options = options.with_allow_http(url.scheme() == "http");
                let server = &url[..url::Position::BeforePath];
                let builder = HttpBuilder::new().with_url(server).with_client_options(options).with_retry(retry);
                (Arc::new(builder.build().map_err(refused)?), None)
            }
            ObjectStoreScheme::Local => (Arc::new(LocalFileSystem::new()), None),
            _ => return Err(Failure::bad_input(format!("{text:?} is in no object store that is known here"), SCHEMES)),
        };
        Ok(Remote {
            url: text.trim_end_matches('/').to_owned(),
            store,
            in_parts,
            prefix,
            lists,
            lists_bare_tags,
            access,
            turns: Semaphore::new(REQUESTS),
        })
    }

    /// All objects below the prefix, with tags as an object's own answers have them.
    pub fn objects(&self) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let (listed, is_bare) = (self.store.list(prefix), self.lists_bare_tags);
        let quoted = move |tag: String| if is_bare && !tag.contains('"') { format!("\"{tag}\"") } else { tag };
        listed.map_ok(move |object| ObjectMeta { e_tag: object.e_tag.map(quoted), ..object }).boxed()
    }

    /// The name that a directory for it has, where none is given.
    pub fn last_part(&self) -> Result<String> {
        let part = self.prefix.parts().next_back().map(|part| part.as_ref().to_owned());
        part.ok_or_else(|| {
            Failure::bad_input(format!("{self} has no last part to name a directory"), "give the directory")
        })
    }

    /// The key of a file, by its path below the directory that is sent.
    pub fn key(&self, relative: &str) -> Result<Key> {
        let text =
            if self.prefix.as_ref().is_empty() { relative.to_owned() } else { format!("{}/{relative}", self.prefix) };
        Key::parse(&text).map_err(|error| {
            Failure::bad_input(format!("{relative:?} can't be the name of an object: {error}"), "rename the file")
        })
    }

    /// Held for a request that carries contents.
    pub async fn turn(&self) -> SemaphorePermit<'_> {
        self.turns.acquire().await.expect("it is never closed")
    }

    pub fn not_listed(&self, error: &object_store::Error) -> Failure {
        Failure::new(format!("can't list {self}: {}", in_words(error))).hint(self.access)
    }

    pub fn failure(&self, doing: &str, key: &Key, error: &object_store::Error) -> Failure {
        Failure::new(format!("can't {doing} {key} ({self}): {}", in_words(error)))
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str(&self.url)
    }
}

/// Whether the parts of an upload are gone, or the upload is: S3 and Google don't know it, Azure does not have all of its blocks.
pub fn parts_are_gone(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) || in_words(error).contains("<Code>InvalidBlockList</Code>")
}

/// The error without the client's own words around it.
fn in_words(error: &object_store::Error) -> String {
    use object_store::Error;
    match error {
        Error::NotFound { .. } => "it is not there".to_owned(),
        Error::PermissionDenied { .. } => "permission denied by the store".to_owned(),
        Error::Unauthenticated { .. } => "the store does not know these credentials".to_owned(),
        Error::Precondition { .. } => "it was changed meanwhile".to_owned(),
        other => {
            // The innermost cause says most.
            let mut said = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(inner) = cause {
                let text = inner.to_string();
                if !said.contains(&text) {
                    said = format!("{said}: {text}");
                }
                cause = inner.source();
            }
            said.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_place_or_is_refused_with_what_to_give() {
        let place = Remote::of("file:///data/set").unwrap();
        assert_eq!((place.prefix.as_ref(), place.last_part().unwrap().as_str()), ("data/set", "set"));
        assert_eq!(place.key("a/b c.txt").unwrap().as_ref(), "data/set/a/b c.txt");
        for bad in ["results", "ftp://host/x", "file:///a?b", "s3://", "https:///x#y"] {
            let failure = Remote::of(bad).err().unwrap_or_else(|| panic!("{bad} was taken"));
            assert!(failure.message.contains(bad) && failure.hint.is_some() && failure.code == 2, "{failure:?}");
        }
        assert!(place.key("a/../b").is_err());
    }
}
