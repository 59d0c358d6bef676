//! Functions' names as their languages write them.

/// Longer ones are templates of templates: they stay as they are.
const MAX_MANGLED: usize = 16 << 10;

/// The name in its language; only of one that begins as a mangled name does. A C function may well
/// be called `i`, which would also do for a C++ type.
pub(crate) fn demangled(name: &str) -> String {
    let mangled = name.starts_with("_Z") || name.starts_with("_R");
    if !mangled || name.len() > MAX_MANGLED {
        return name.to_owned();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash.
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok();
    cpp.and_then(|symbol| symbol.demangle().ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::demangled;

    #[test]
    fn only_what_begins_as_a_mangled_name_does() {
        for name in [
            "i", "d", "w", "Pv", "Sa", "Ss", "St3foo", "main", "Z3foov", "_RunLoop", "",
        ] {
            assert_eq!(demangled(name), name);
        }
        for (mangled, name) in [
            ("_ZN4core3ptr4read17h0123456789abcdefE", "core::ptr::read"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", "push_back(int&&)"),
        ] {
            assert!(demangled(mangled).ends_with(name), "{}", demangled(mangled));
        }
    }
}
