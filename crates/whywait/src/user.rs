//! Who called whywait, when it runs under sudo.

use std::ffi::OsString;
use std::path::PathBuf;

use nix::unistd::{Gid, Uid, User, initgroups, setgroups, setresgid, setresuid};

/// The user who called sudo. A launched command runs as this user and recordings belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Invoker {
    /// User id, not root's.
    pub(crate) uid: u32,
    /// Group id.
    pub(crate) gid: u32,
}

impl Invoker {
    /// The user who called sudo; `None` when whywait does not run as root, or was started by root.
    pub(crate) fn from_env() -> Option<Self> {
        // Anybody can set these variables. Only root acts on them, and then only to give up
        // privileges.
        if !Uid::effective().is_root() {
            return None;
        }
        let id = |name| std::env::var(name).ok()?.parse().ok();
        Self::from_ids(id("SUDO_UID")?, id("SUDO_GID")?)
    }

    fn from_ids(uid: u32, gid: u32) -> Option<Self> {
        (uid != 0).then_some(Invoker { uid, gid })
    }

    /// Becomes this user for good, with all groups the user is in.
    ///
    /// # Errors
    /// Fails unless the process is privileged. It must then not go on.
    pub(crate) fn become_it(self) -> nix::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        // Groups first: without root there is no right to change them.
        match self
            .user()
            .and_then(|user| std::ffi::CString::new(user.name).ok())
        {
            Some(name) => initgroups(&name, gid)?,
            // A user without an entry, as in many containers, is in no other group.
            None => setgroups(&[gid])?,
        }
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)
    }

    /// The variables that sudo set to root's values, as this user's own shell would have them.
    /// `PATH` is not among them: sudo's is a choice of the machine's administrator.
    pub(crate) fn env(self) -> Vec<(&'static str, OsString)> {
        let Some(user) = self.user() else {
            return Vec::new();
        };
        let ours = [
            ("HOME", user.dir.into_os_string()),
            ("USER", OsString::from(&user.name)),
            ("LOGNAME", OsString::from(&user.name)),
            ("SHELL", user.shell.into_os_string()),
        ];
        let root = User::from_uid(Uid::from_raw(0)).ok().flatten();
        let roots = |name: &str| -> Option<PathBuf> {
            let root = root.as_ref()?;
            Some(match name {
                "HOME" => root.dir.clone(),
                "SHELL" => root.shell.clone(),
                _ => PathBuf::from(&root.name),
            })
        };
        // Values that are not root's were kept (sudo -E) or given (sudo HOME=…) on purpose.
        let is_roots = |name: &str| {
            std::env::var_os(name).is_none_or(|value| Some(PathBuf::from(value)) == roots(name))
        };
        ours.into_iter()
            .filter(|(name, value)| !value.is_empty() && is_roots(name))
            .collect()
    }

    fn user(self) -> Option<User> {
        User::from_uid(Uid::from_raw(self.uid)).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_nobody_to_become() {
        assert_eq!(Invoker::from_ids(0, 0), None);
        assert_eq!(
            Invoker::from_ids(1000, 100),
            Some(Invoker {
                uid: 1000,
                gid: 100
            })
        );
    }
}
