//! Where files go.

mod folder;
#[cfg(feature = "s3")]
mod s3;

use std::io;

pub use folder::Folder;
#[cfg(feature = "s3")]
pub use s3::S3Bucket;

/// Somewhere that holds files by their path, each whole or not at all.
pub trait Place {
    /// Puts a file there, instead of one that is there. Gives `false` when that was the same, byte
    /// by byte, and nothing was written.
    ///
    /// # Errors
    /// When the place refuses. What was there is as it was.
    fn put(&self, path: &str, bytes: Vec<u8>) -> Result<bool, PlaceError>;

    /// Whether it has a file, whole.
    ///
    /// # Errors
    /// When the place cannot be asked.
    fn has(&self, path: &str) -> Result<bool, PlaceError>;
}

/// Why a place refused, in one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// There is no space.
    #[error(
        "{path}: the disk is full: free some space and publish again (files that are there are \
         whole)"
    )]
    Full {
        /// What was being written.
        path: String,
    },
    /// The file system refused.
    #[error("{path}: cannot write: {source}")]
    Io {
        /// What was being written.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A service refused.
    #[error("{path}: {reason}")]
    Service {
        /// What was being written.
        path: String,
        /// What it said, and what to do.
        reason: String,
    },
}

impl PlaceError {
    pub(crate) fn io(path: impl Into<String>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, source },
        }
    }
}
