//! What can go wrong, each as one line that says what happened and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a recording could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The folder holds something already.
    #[error("{path}: already holds a recording: choose another folder or remove this one")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The path is taken by something that is not an empty folder.
    #[error("{path}: not an empty folder: choose a folder that does not exist yet")]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// The path is a symbolic link: where it leads may be another's choice.
    #[error("{path}: a symbolic link: name the folder itself, or one that does not exist yet")]
    Link {
        /// The path.
        path: PathBuf,
    },
    /// The empty folder belongs to somebody else.
    #[error("{path}: belongs to another user: choose a folder that does not exist yet")]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// No space, or no quota, left. What was closed before stays readable.
    #[error(
        "{path}: the disk is full: free some space or record to another disk \
         (segments closed before are intact)"
    )]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },
    /// Another failure of the filesystem.
    #[error("{path}: cannot write: {source}")]
    Io {
        /// What was being written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The encoder refused: a bug of whywait.
    #[error("{path}: cannot encode: {reason}; please report this")]
    Encode {
        /// What was being written.
        path: PathBuf,
        /// What the encoder said.
        reason: String,
    },
    /// An earlier write failed; nothing was recorded since.
    #[error("{path}: recording stopped at an earlier error")]
    Stopped {
        /// The recording's folder.
        path: PathBuf,
    },
}

impl WriteError {
    /// Whether the place is taken, so that nothing was written there.
    pub fn is_taken(&self) -> bool {
        matches!(
            self,
            Self::Exists { .. } | Self::Occupied { .. } | Self::Link { .. } | Self::Foreign { .. }
        )
    }

    /// The path that it is about.
    pub(crate) fn path_mut(&mut self) -> &mut PathBuf {
        match self {
            Self::Exists { path }
            | Self::Occupied { path }
            | Self::Link { path }
            | Self::Foreign { path }
            | Self::DiskFull { path }
            | Self::Io { path, .. }
            | Self::Encode { path, .. }
            | Self::Stopped { path } => path,
        }
    }

    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn parquet(path: &Path, error: parquet::errors::ParquetError) -> Self {
        use parquet::errors::ParquetError;
        match error {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(source) => Self::io(path, *source),
                Err(other) => Self::Encode {
                    path: path.to_path_buf(),
                    reason: other.to_string(),
                },
            },
            other => Self::Encode {
                path: path.to_path_buf(),
                reason: other.to_string(),
            },
        }
    }
}

/// Why a folder could not be opened as a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no such folder or archive, or no `meta.json` in it.
    #[error(
        "{path}: not a whywait recording (no meta.json): \
         name the folder that `whywait record -o` wrote, or what `whywait pack` made of it"
    )]
    NotARecording {
        /// The folder.
        path: PathBuf,
    },
    /// There is a `meta.json`, but it is not whywait's or was damaged.
    #[error("{path}: not a whywait recording: {reason}")]
    ForeignMeta {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An archive, but not of a recording.
    #[error("{path}: not a packed recording: {reason}")]
    ForeignArchive {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It was made by a newer version.
    #[error(
        "{path}: made by a newer whywait (schema {schema}; this one reads up to {supported}): \
         update whywait"
    )]
    Newer {
        /// The recording.
        path: PathBuf,
        /// Its schema.
        schema: u64,
        /// The newest schema that this version reads.
        supported: u32,
    },
    /// The filesystem refused.
    #[error("{path}: cannot read: {source}")]
    Io {
        /// What was being read.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a recording could not be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A part of it could not be read: the copy would lack that.
    #[error("{0}")]
    Damaged(Damage),
    /// The copy could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A part of a recording that could not be read. Reading goes on with the rest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// Which file or segment, relative to the recording.
    pub what: String,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}
