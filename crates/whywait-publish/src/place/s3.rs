//! A bucket of S3, or of a service that speaks its protocol.

use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    RetryConfig,
};
use rustls::crypto::ring;
use tokio::runtime::{Builder, Runtime};
use url::Url;

use super::{Place, PlaceError};

/// A request that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long and how often a request is tried again.
const RETRIES: usize = 3;

/// A bucket, and what all names in it begin with.
pub struct S3Bucket {
    url: String,
    prefix: String,
    store: AmazonS3,
    runtime: Runtime,
    /// Who may write there is in the environment: the machine is not asked for its role.
    has_keys: bool,
}

impl S3Bucket {
    /// Of `s3://BUCKET/PREFIX`. Who may write there comes from the environment, as other tools for
    /// S3 have it (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …), or from the machine's
    /// role.
    ///
    /// # Errors
    /// When the URL names no bucket, or the environment makes no sense.
    pub fn new(url: &str) -> Result<Self, PlaceError> {
        let refused = |reason: String| PlaceError::Service {
            path: url.to_owned(),
            reason,
        };
        let rest = url.strip_prefix("s3://").unwrap_or_default();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(refused(
                "no bucket: name one as s3://BUCKET/PREFIX".to_owned(),
            ));
        }
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(RetryConfig {
                backoff: BackoffConfig::default(),
                max_retries: RETRIES,
                retry_timeout: TIMEOUT,
            });
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        let has_keys = builder
            .get_config_value(&AmazonS3ConfigKey::AccessKeyId)
            .is_some();
        if let Some(endpoint) = &endpoint {
            check_endpoint(endpoint).map_err(refused)?;
        }
        // Who names an endpoint without TLS means it.
        let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        builder = builder.with_client_options(
            ClientOptions::new()
                .with_allow_http(plain)
                .with_timeout(TIMEOUT),
        );
        // An error says that there is a provider already.
        let _ = ring::default_provider().install_default();
        let store = builder
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
            store,
            runtime,
            has_keys,
        })
    }

    async fn put_unless_same(&self, key: &Path, bytes: Vec<u8>) -> Result<bool, Error> {
        let payload = PutPayload::from(bytes.clone());
        let create = PutMode::Create.into();
        match self.store.put_opts(key, payload, create).await {
            Ok(_) => return Ok(true),
            Err(Error::AlreadyExists { .. }) if self.is_same(key, &bytes).await => {
                return Ok(false);
            }
            // AWS_CONDITIONAL_PUT=disabled, for services that know no conditions.
            Err(Error::AlreadyExists { .. } | Error::NotImplemented { .. }) => {}
            Err(error) => return Err(error),
        }
        self.store.put(key, bytes.into()).await.map(|_| true)
    }

    /// Whether an object has these bytes. Who may not read it writes it again.
    async fn is_same(&self, key: &Path, bytes: &[u8]) -> bool {
        match self.store.get(key).await {
            Ok(found) if found.meta.size == bytes.len() as u64 => {
                found.bytes().await.is_ok_and(|found| found == bytes)
            }
            _ => false,
        }
    }

    fn key(&self, path: &str) -> Result<Path, PlaceError> {
        let key = match self.prefix.as_str() {
            "" => path.to_owned(),
            prefix => format!("{prefix}/{path}"),
        };
        Path::parse(key).map_err(|error| PlaceError::Service {
            path: self.url.clone(),
            reason: error.to_string(),
        })
    }

    fn failed(&self, path: &str, error: &object_store::Error) -> PlaceError {
        let reason = match error {
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                "not allowed: credentials come from AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY, or from the machine's role"
                    .to_owned()
            }
            Error::NotFound { .. } => "there is no such bucket".to_owned(),
            error if self.has_keys => format!("the request failed: {}", innermost(error)),
            error => format!(
                "the request failed: {}; without AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY the \
                 machine needs a role",
                innermost(error)
            ),
        };
        PlaceError::Service {
            path: format!("{}/{path}", self.url),
            reason,
        }
    }
}

/// The library takes it for a URL, and ends the program where it is none.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let why = match Url::parse(endpoint) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => return Ok(()),
        Ok(_) => "not http:// or https://".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!(
        "the endpoint of the environment is no URL ({why}): set AWS_ENDPOINT_URL to one such as \
         https://s3.example.org"
    ))
}

/// What an error comes from: the rest is which request it was.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

impl Place for S3Bucket {
    /// An object is there whole or not at all: it is put in one request, which the service refuses
    /// where there is one already.
    fn put(&self, path: &str, bytes: Vec<u8>) -> Result<bool, PlaceError> {
        let key = self.key(path)?;
        self.runtime
            .block_on(self.put_unless_same(&key, bytes))
            .map_err(|error| self.failed(path, &error))
    }

    fn has(&self, path: &str) -> Result<bool, PlaceError> {
        let key = self.key(path)?;
        match self.runtime.block_on(self.store.head(&key)) {
            Ok(found) => Ok(found.size > 0),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed(path, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_endpoint;

    #[test]
    fn an_endpoint_is_a_url() {
        for endpoint in ["http://[::1]:9000", "https://s3.example.org/path"] {
            assert_eq!(check_endpoint(endpoint), Ok(()));
        }
        for wrong in ["http://[::1", "localhost:9000", "", "http://", "http://a b"] {
            let error = check_endpoint(wrong).expect_err(wrong);
            assert!(error.contains("AWS_ENDPOINT_URL"), "{error}");
        }
    }
}
