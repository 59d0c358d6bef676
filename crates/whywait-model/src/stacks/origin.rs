//! Whose code a frame is: the application's, a runtime's or the system's.

use whywait_events::ModuleKind;

use super::Label;

/// Whose code a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameOrigin {
    /// The application's own, or a library of its own choosing.
    App,
    /// The language's runtime, an I/O framework or a standard library.
    Runtime,
    /// The C library, the loader, the kernel.
    System,
}

/// Crates whose frames say how the program is driven, not what it does.
const RUST_RUNTIME: &[&str] = &[
    "std",
    "core",
    "alloc",
    "tokio",
    "tokio_util",
    "mio",
    "hyper",
    "hyper_util",
    "axum",
    "axum_core",
    "tower",
    "tower_http",
    "tower_service",
    "http_body",
    "http_body_util",
    "futures",
    "futures_util",
    "futures_core",
    "actix_rt",
    "actix_server",
    "actix_http",
    "actix_web",
    "async_std",
    "async_io",
    "async_executor",
    "smol",
    "polling",
    "parking_lot",
    "parking_lot_core",
    "crossbeam",
    "crossbeam_channel",
    "rayon_core",
    "pin_project_lite",
    "tracing",
    "h2",
    "tonic",
];

/// Go packages of the standard library that drive a server.
const GO_RUNTIME: &[&str] = &[
    "runtime",
    "internal",
    "net",
    "net/http",
    "sync",
    "syscall",
    "os",
    "time",
    "bufio",
    "io",
    "crypto/tls",
    "context",
];

/// Whether a frame is the Python interpreter's own, or of a module of its standard library that is
/// written in C.
pub(super) fn of_python(label: &Label) -> bool {
    let mut path = label.module.rsplit('/');
    let file = path.next().unwrap_or_default();
    label.kind == ModuleKind::Elf
        && (path.next() == Some("lib-dynload")
            || ["libpython", "python3", "python2"]
                .iter()
                .any(|name| file.starts_with(name)))
}

/// The same of Ruby.
fn of_ruby(label: &Label) -> bool {
    let file = label.module.rsplit('/').next().unwrap_or_default();
    label.kind == ModuleKind::Elf
        && (file == "ruby"
            || ["libruby", "ruby2", "ruby3"]
                .iter()
                .any(|name| file.starts_with(name))
            || label.module.contains("/ruby/") && !label.module.contains("/gems/"))
}

/// The same of PHP.
fn of_php(label: &Label) -> bool {
    let file = label.module.rsplit('/').next().unwrap_or_default();
    label.kind == ModuleKind::Elf
        && (["php", "libphp"].iter().any(|name| file.starts_with(name))
            || label.module.contains("/php/"))
}

/// The same of any interpreter whose functions are known.
pub(super) fn of_interpreter(label: &Label) -> bool {
    of_python(label) || of_ruby(label) || of_php(label)
}

/// Functions through which musl makes its system calls.
pub(super) const SYSCALL_WRAPPERS: &[&str] =
    &["sccp", "__syscall_cp", "__syscall_cp_c", "__syscall_cp_asm"];

/// Functions of the C library that threads start in, block in, or end in.
const LIBC: &[&str] = &[
    "_start",
    "main",
    "start_thread",
    "clone",
    "clone3",
    "syscall",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "read",
    "readv",
    "pread64",
    "write",
    "writev",
    "pwrite64",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "sendto",
    "sendmsg",
    "accept",
    "accept4",
    "connect",
    "fsync",
    "fdatasync",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_mutex_lock",
    "pthread_join",
    "sem_wait",
    "waitpid",
    "wait4",
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "memchr",
    "strlen",
    "strcmp",
    "strchr",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "malloc_consolidate",
];

/// Native parts of Java's own library.
const JAVA_LIBRARIES: &[&str] = &[
    "libattach.so",
    "libextnet.so",
    "libinstrument.so",
    "libjava.so",
    "libjdwp.so",
    "libjimage.so",
    "libjli.so",
    "libmanagement.so",
    "libmanagement_agent.so",
    "libmanagement_ext.so",
    "libnet.so",
    "libnio.so",
    "libprefs.so",
    "librmi.so",
    "libsctp.so",
    "libverify.so",
    "libzip.so",
];

/// Packages of Java's own library, of its languages', and of what drives a server or talks to
/// others for it.
const JAVA_PACKAGES: &[&str] = &[
    "java.",
    "javax.",
    "jdk.",
    "sun.",
    "com.sun.",
    "jakarta.",
    "kotlin.",
    "kotlinx.",
    "scala.",
    "clojure.",
    "groovy.",
    "org.codehaus.groovy.",
    "io.netty.",
    "io.vertx.",
    "io.undertow.",
    "org.xnio.",
    "org.jboss.",
    "org.eclipse.jetty.",
    "org.apache.catalina.",
    "org.apache.coyote.",
    "org.apache.tomcat.",
    "org.springframework.",
    "reactor.",
    "akka.",
    "org.apache.pekko.",
    "io.quarkus.",
    "io.micronaut.",
    "io.helidon.",
    "io.grpc.",
    "org.postgresql.",
    "com.mysql.",
    "org.mariadb.",
    "com.zaxxer.hikari.",
    "org.hibernate.",
    "redis.clients.",
    "io.lettuce.",
    "com.mongodb.",
    "org.apache.http.",
    "org.apache.hc.",
    "org.apache.kafka.",
    "okhttp3.",
    "okio.",
    "com.fasterxml.jackson.",
    "com.google.common.",
    "org.slf4j.",
    "ch.qos.logback.",
    "org.apache.logging.",
    "org.apache.commons.",
];

/// Parts of the names of Java's classes that are made at run time, and only call others.
const JAVA_MADE: &[&str] = &[
    "$$Lambda",
    "$$EnhancerBy",
    "$$FastClassBy",
    "$$SpringCGLIB$$",
    ".$Proxy",
];

/// In which PostgreSQL's processes wait, whatever for; who called them says what for.
const POSTGRES_WAITS: &[&str] = &[
    "WaitEventSetWait",
    "WaitLatch",
    "WaitLatchOrSocket",
    "ProcSleep",
    "LockAcquire",
    "LockAcquireExtended",
    "PGSemaphoreLock",
];

/// Whose code a frame is, from its name and its module.
pub fn origin(label: &Label) -> FrameOrigin {
    match label.kind {
        ModuleKind::Kernel => return FrameOrigin::System,
        ModuleKind::Python => {
            // `<awaited>` is a type of what a coroutine waits for, and no function.
            let stdlib = [
                "/lib/python3",
                "/lib/python2",
                "<frozen",
                "<awaited>",
                "/site-packages/",
            ];
            let library = stdlib.iter().any(|part| label.file.contains(part));
            return if library {
                FrameOrigin::Runtime
            } else {
                FrameOrigin::App
            };
        }
        // Functions that are written in C have no file.
        ModuleKind::Ruby | ModuleKind::Php => {
            let libraries: &[&str] = match label.kind {
                ModuleKind::Ruby => &["/lib/ruby/", "<internal:", "/gems/", "/rubygems/"],
                _ => &["/vendor/", "/share/php/", "phar://"],
            };
            let library = libraries.iter().any(|part| label.file.contains(part));
            return if library || label.file.is_empty() {
                FrameOrigin::Runtime
            } else {
                FrameOrigin::App
            };
        }
        _ => {}
    }
    if label.kind == ModuleKind::Jit
        && (of_virtual_machine(&label.name) || of_script_library(&label.file))
    {
        return FrameOrigin::Runtime;
    }
    // The interpreter, and the modules of its standard library that are in C.
    if of_interpreter(label) || label.module.contains("/lib-dynload/") {
        return FrameOrigin::Runtime;
    }
    let file = label.module.rsplit('/').next().unwrap_or_default();
    let system = [
        "libc.so",
        "libc-",
        "libpthread",
        "ld-linux",
        "ld-musl",
        "libstdc++",
        "libm.so",
        "libgcc_s",
        "[vdso]",
    ];
    if system.iter().any(|name| file.starts_with(name)) {
        return FrameOrigin::System;
    }
    if file == "node"
        || JAVA_LIBRARIES.contains(&file)
        || (file == "postgres" && POSTGRES_WAITS.contains(&&*label.name))
    {
        return FrameOrigin::Runtime;
    }
    let runtimes = [
        "libuv",
        "libevent",
        "libev.",
        "libnode",
        "libjvm",
        "libcoreclr",
    ];
    if runtimes.iter().any(|name| file.starts_with(name)) {
        return FrameOrigin::Runtime;
    }
    if of_library_source(&label.file) {
        return FrameOrigin::Runtime;
    }
    of_name(&label.name)
}

/// Whether a source file is the standard library's or a runtime's: functions that were inlined may
/// have names without a path (`poll<…>`).
fn of_library_source(file: &str) -> bool {
    // `/home/me/.cargo/registry/src/index.crates.io-…/hyper-util-0.1.21/src/…`
    let of_crate = || {
        let path = file.split_once("/registry/src/")?.1;
        let (krate, version) = path.split('/').nth(1)?.rsplit_once('-')?;
        let known = RUST_RUNTIME.contains(&&*krate.replace('-', "_"));
        Some(known && version.starts_with(|c: char| c.is_ascii_digit()))
    };
    // `/usr/include/c++/12/bits/this_thread_sleep.h`
    let of_cpp = file.contains("/include/c++/");
    of_cpp || file.contains("/rustc/") && file.contains("/library/") || of_crate() == Some(true)
}

/// Whether a script is a part of node, or was installed for the application to use.
fn of_script_library(file: &str) -> bool {
    file.starts_with("node:") || file.contains("/node_modules/")
}

/// Whether code that was made at run time is the virtual machine's own or of its library, from the
/// name that it was given. What begins with a bracket has none.
fn of_virtual_machine(name: &str) -> bool {
    const BEGINS: &[&str] = &[
        "[",
        // V8
        "Builtin:",
        "BytecodeHandler:",
        "Stub:",
        // HotSpot
        "Interpreter",
        "StubRoutines",
        "vtable ",
        "I2C/C2I",
        "native method ",
        "DeoptimizationBlob",
        "ExceptionBlob",
        "SafepointBlob",
    ];
    // `int java.lang.String.hashCode()`, `JS:*emit node:events:500:1`, and, of CPython,
    // `py::run:/usr/lib/python3.12/asyncio/base_events.py`.
    let path = name.split('(').next().unwrap_or(name);
    let path = path.rsplit(' ').next().unwrap_or(path);
    BEGINS.iter().any(|begins| name.starts_with(begins))
        || JAVA_PACKAGES
            .iter()
            .any(|package| path.starts_with(package))
        || JAVA_MADE.iter().any(|part| path.contains(part))
        || name.contains(" node:")
        || (name.starts_with("py::")
            && ["/lib/python3", ":<frozen"]
                .iter()
                .any(|part| name.contains(part)))
}

/// The name of a function of C++ without the type of its result, which those have that are made of
/// a template.
fn without_result(name: &str) -> &str {
    let (mut depth, mut from) = (0_i32, 0);
    for (at, c) in name.char_indices() {
        match c {
            '(' if depth == 0 && at > from => break,
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = (depth - 1).max(0),
            ' ' if depth == 0 && !name[..at].ends_with("operator") => from = at + 1,
            _ => {}
        }
    }
    let rest = &name[from..];
    // Not `(closure in app::serve) …` of others.
    if rest.contains("::") { rest } else { name }
}

/// Whose code a function of a program is, from its name.
fn of_name(name: &str) -> FrameOrigin {
    // In a program that is linked statically these are its own.
    if name.starts_with("__") || LIBC.contains(&name) || SYSCALL_WRAPPERS.contains(&name) {
        return FrameOrigin::System;
    }
    // `void std::this_thread::sleep_for<long, std::ratio<1l, 1000l> >`
    let name = without_result(name);
    // `<a::B as c::D>::e` is code of a; `a::b::{{closure}}` too.
    let path = name.trim_start_matches(['<', '&', '(']);
    let path = path
        .strip_prefix("mut ")
        .or_else(|| path.strip_prefix("dyn "))
        .unwrap_or(path);
    if let Some((krate, _)) = path.split_once("::") {
        // `<F as axum::handler::Handler>::call`: a type parameter belongs to nobody, the trait
        // says whose it is.
        let krate = krate.rsplit(" as ").next().unwrap_or(krate);
        return if RUST_RUNTIME.contains(&krate) {
            FrameOrigin::Runtime
        } else {
            FrameOrigin::App
        };
    }
    // Generic shims such as `__rustc::rust_begin_short_backtrace` are covered above; Go names are
    // `package.Func`, with the package's path before the first dot after the last slash.
    let after_slash = name.rfind('/').map_or(0, |at| at + 1);
    if let Some(dot) = name[after_slash..].find('.') {
        let package = &name[..after_slash + dot];
        if GO_RUNTIME.contains(&package)
            || package.starts_with("internal/")
            || package.starts_with("runtime/")
        {
            return FrameOrigin::Runtime;
        }
    }
    let prefixes = [
        "uv_",
        "uv__",
        "node::",
        "v8::",
        "event_base_",
        "ev_run",
        "aeMain",
        "aeProcessEvents",
        "aeApiPoll",
        "ngx_",
    ];
    if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
        return FrameOrigin::Runtime;
    }
    FrameOrigin::App
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str, module: &str, kind: ModuleKind, file: &str) -> Label {
        Label {
            name: name.into(),
            named: true,
            file: file.into(),
            line: 1,
            module: module.into(),
            kind,
        }
    }

    #[test]
    fn the_standard_library_of_cpp_is_not_the_programs_own() {
        for name in [
            "void std::this_thread::sleep_for<long, std::ratio<(long)1, (long)1000> >",
            "std::condition_variable::wait<app::Pool::run()::{lambda()#1}>",
            "std::vector<int> std::__detail::collect<app::X>",
        ] {
            assert_eq!(of_name(name), FrameOrigin::Runtime, "{name}");
        }
        for name in [
            "export_month",
            "void app::Pool::add<std::function<void()> >(std::function<void()>)",
            "std::vector<int, std::allocator<int> > app::collect<int>",
            "app::X::operator std::string",
            "void (anonymous namespace)::render<int>(int)",
            "main(int, char**)::{lambda(httplib::Request const&)#1}::operator()",
        ] {
            assert_eq!(of_name(name), FrameOrigin::App, "{name}");
        }
        let header = "/usr/include/c++/12/condition_variable";
        let inlined = label(
            "wait<main(int, char**)::<lambda()> >",
            "/srv/app",
            ModuleKind::Elf,
            header,
        );
        assert_eq!(origin(&inlined), FrameOrigin::Runtime);
    }

    #[test]
    fn the_applications_frames_are_not_the_runtimes() {
        let elf = |name, module| origin(&label(name, module, ModuleKind::Elf, ""));
        assert_eq!(
            elf("tokio::runtime::park::Inner::park", "/srv/app"),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf(
                "<std::sys::sync::condvar::futex::Condvar>::wait",
                "/srv/app"
            ),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf("<F as axum::handler::Handler<T>>::call", "/srv/app"),
            FrameOrigin::Runtime
        );
        assert_eq!(elf("app::render_image", "/srv/app"), FrameOrigin::App);
        assert_eq!(
            elf("clock_nanosleep", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
            FrameOrigin::System
        );
        assert_eq!(
            elf("runtime.findRunnable", "/srv/app"),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf("github.com/me/app.handle", "/srv/app"),
            FrameOrigin::App
        );
        assert_eq!(
            elf("net/http.(*conn).serve", "/srv/app"),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf(
                "task_step_impl",
                "/usr/lib/python3.11/lib-dynload/_asyncio.cpython-311-x86_64-linux-gnu.so"
            ),
            FrameOrigin::Runtime
        );
        let compiled = |name| origin(&label(name, "[jit]", ModuleKind::Jit, ""));
        for of_machine in [
            "[jit]",
            "Interpreter",
            "Builtin:ArrayMap",
            "int java.lang.String.hashCode()",
            "java.lang.Thread.sleep",
            "org.apache.coyote.http11.Http11Processor.service",
            "com.acme.Server$$Lambda.run",
            "com.sun.proxy.$Proxy12.load",
            "[jvm: StubRoutines (2)]",
            "JS:*emit node:events:500:1",
            "py::_run_once:/usr/lib/python3.12/asyncio/base_events.py",
        ] {
            assert_eq!(compiled(of_machine), FrameOrigin::Runtime, "{of_machine}");
        }
        for own in [
            "void Server.render(java.lang.String)",
            "com.acme.Server.lambda$main$0",
            "javaagent.Agent.watch",
            "LazyCompile:*render /srv/server.js:10:5",
            "py::render:/srv/server.py",
        ] {
            assert_eq!(compiled(own), FrameOrigin::App, "{own}");
        }
        assert_eq!(
            elf(
                "NET_Read",
                "/usr/lib/jvm/java-17-openjdk-amd64/lib/libnet.so"
            ),
            FrameOrigin::Runtime
        );
        let of_script = |file| origin(&label("emit", "[jit]", ModuleKind::Jit, file));
        for library in [
            "node:internal/timers",
            "/srv/node_modules/express/lib/router.js",
        ] {
            assert_eq!(of_script(library), FrameOrigin::Runtime, "{library}");
        }
        assert_eq!(of_script("/srv/server.js"), FrameOrigin::App);
        assert_eq!(elf("memcpy", "/srv/app"), FrameOrigin::System);
        let inlined = |file| origin(&label("poll<F>", "/srv/app", ModuleKind::Elf, file));
        let registry = "/home/me/.cargo/registry/src/index-1949cf8c6b5b557f";
        for (file, expected) in [
            (
                "/rustc/5980761/library/core/src/num/mod.rs",
                FrameOrigin::Runtime,
            ),
            (
                &*format!("{registry}/hyper-util-0.1.21/src/a.rs"),
                FrameOrigin::Runtime,
            ),
            (
                &*format!("{registry}/serde_json-1.0.1/src/de.rs"),
                FrameOrigin::App,
            ),
            ("/srv/app/src/main.rs", FrameOrigin::App),
        ] {
            assert_eq!(inlined(file), expected, "{file}");
        }
        let python = |file| origin(&label("f", "python", ModuleKind::Python, file));
        assert_eq!(
            python("/usr/lib/python3.11/asyncio/events.py"),
            FrameOrigin::Runtime
        );
        assert_eq!(python("/srv/server.py"), FrameOrigin::App);
        let ruby = |file| origin(&label("call", "ruby", ModuleKind::Ruby, file));
        for library in [
            "/usr/lib/ruby/3.1.0/monitor.rb",
            "/srv/app/vendor/bundle/ruby/3.3.0/gems/rack-3.1.0/lib/rack/head.rb",
            "<internal:kernel>",
            "",
        ] {
            assert_eq!(ruby(library), FrameOrigin::Runtime, "{library}");
        }
        assert_eq!(ruby("/srv/app/lib/orders.rb"), FrameOrigin::App);
        let php = |file| origin(&label("load", "php", ModuleKind::Php, file));
        for library in [
            "/srv/app/vendor/symfony/http-kernel/HttpKernel.php",
            "/usr/share/php/PEAR.php",
            "",
        ] {
            assert_eq!(php(library), FrameOrigin::Runtime, "{library}");
        }
        assert_eq!(php("/srv/app/src/Orders.php"), FrameOrigin::App);
        let folder = "/usr/lib/x86_64-linux-gnu/ruby";
        for (module, expected) in [
            (
                "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2",
                FrameOrigin::Runtime,
            ),
            (&*format!("{folder}/3.1.0/socket.so"), FrameOrigin::Runtime),
            (
                &*format!("{folder}/gems/pg-1.5/lib/pg_ext.so"),
                FrameOrigin::App,
            ),
            ("/usr/sbin/php-fpm8.2", FrameOrigin::Runtime),
            ("/usr/lib/php/20220829/mysqli.so", FrameOrigin::Runtime),
        ] {
            assert_eq!(elf("gvl_wait", module), expected, "{module}");
        }
    }
}
