//! Runtimes that compile code while they run, and are not read: what is in no file has names there
//! only if the runtime itself writes them down for perf.

/// Such a runtime, by the files that are mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadRuntime {
    /// Erlang's virtual machine, and Elixir's.
    Beam,
    /// .NET.
    DotNet,
    /// Bun: JavaScriptCore.
    Bun,
    /// Deno: V8, without a description of itself.
    Deno,
    /// None that is known.
    Other,
}

/// Each with the file that it is known by.
const FILES: [(UnreadRuntime, &[u8]); 5] = [
    (UnreadRuntime::Beam, b"beam.smp"),
    (UnreadRuntime::DotNet, b"libcoreclr.so"),
    (UnreadRuntime::Bun, b"bun"),
    // As npm has it, on Linux, too.
    (UnreadRuntime::Bun, b"bun.exe"),
    (UnreadRuntime::Deno, b"deno"),
];

impl UnreadRuntime {
    /// By the paths of a process's mapped files.
    pub(crate) fn of<'a>(mut paths: impl Iterator<Item = &'a [u8]>) -> Self {
        let known = |path: &[u8]| {
            let name = path.rsplit(|&byte| byte == b'/').next();
            let known = FILES.iter().find(|(_, file)| name == Some(file));
            known.map(|(runtime, _)| *runtime)
        };
        paths.find_map(known).unwrap_or(Self::Other)
    }

    /// What it is, and how its functions get names: the end of a sentence of code that has none.
    pub fn how(self) -> &'static str {
        match self {
            Self::Beam => {
                "this is Erlang's virtual machine (BEAM): start it with +JPperf true (as in \
                 ERL_FLAGS), of Erlang/OTP 25 or newer"
            }
            Self::DotNet => {
                "this is .NET: start it with DOTNET_PerfMapEnabled=1 in its environment"
            }
            Self::Bun => "this is Bun (JavaScriptCore), which writes none down",
            Self::Deno => "this is Deno (V8): start it with --v8-flags=--perf-basic-prof",
            Self::Other => {
                "have the program write /tmp/perf-PID.map before it is watched, if its runtime can \
                 (node --perf-basic-prof; jcmd PID Compiler.perfmap)"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_known_by_its_file() {
        let of = |paths: &[&'static str]| {
            let paths = paths.iter().map(|path| path.as_bytes());
            UnreadRuntime::of(paths)
        };
        assert_eq!(
            of(&["/usr/lib/libc.so.6", "/usr/lib/erlang/erts-13/bin/beam.smp"]),
            UnreadRuntime::Beam
        );
        assert_eq!(
            of(&["/usr/bin/dotnet", "/usr/share/dotnet/libcoreclr.so"]),
            UnreadRuntime::DotNet
        );
        assert_eq!(of(&["/opt/bun/bin/bun"]), UnreadRuntime::Bun);
        assert_eq!(of(&["/opt/bundle"]), UnreadRuntime::Other);
        assert_eq!(of(&[]), UnreadRuntime::Other);
    }
}
