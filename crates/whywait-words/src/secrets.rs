//! Command lines without what is nobody else's business. A recording has all of it; reports and
//! packed recordings go into tickets.

/// Parts of the names of options and variables that hold a secret.
const SECRET: [&str; 14] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "auth",
    "credential",
    "apikey",
    "api-key",
    "api_key",
    "accesskey",
    "access-key",
    "access_key",
    "private-key",
    "private_key",
];
/// Options whose value is `USER:PASSWORD`.
const USER: [&str; 2] = ["-u", "--user"];
const MASK: &str = "***";
/// What separates several values in one argument, as in a URL or a connection string.
const SEPARATORS: [char; 4] = ['&', '?', ';', ','];
const QUOTES: [char; 2] = ['\'', '"'];

/// A command line, with what looks like a secret masked: `--password X`, `TOKEN=X`, the user and
/// password of a URL; also within one argument, as a shell's script or a title has them.
pub fn without_secrets(command: &[String]) -> Vec<String> {
    let mut masking = Masking::default();
    command.iter().map(|word| masking.shown(word)).collect()
}

/// Masks one word after the other.
#[derive(Default)]
struct Masking {
    next: Next,
}

/// What the next word may be.
#[derive(Default, Clone, Copy, PartialEq)]
enum Next {
    #[default]
    Anything,
    Secret,
    /// A secret of several words.
    Secrets,
    /// `USER:PASSWORD`, or a user.
    User,
}

impl Masking {
    fn shown(&mut self, word: &str) -> String {
        let is_option = word.starts_with('-');
        let next = match word.strip_suffix(':') {
            Some(name) if is_secret(name) => Next::Secrets,
            None if is_option && !word.contains('=') && is_secret(word) => Next::Secret,
            None if USER.contains(&word) => Next::User,
            _ => Next::Anything,
        };
        match std::mem::replace(&mut self.next, next) {
            Next::Secret | Next::Secrets if !is_option => MASK.to_owned(),
            Next::User if !is_option && word.contains(':') => MASK.to_owned(),
            _ => masked(word),
        }
    }
}

fn masked(word: &str) -> String {
    // All of a value: it may hold anything. `Authorization: Bearer X` has no `=`.
    for between in ["=", ": "] {
        if let Some((name, value)) = word.split_once(between)
            && is_name(name)
            && is_secret(name)
            && !value.is_empty()
        {
            return format!("{name}{between}{MASK}");
        }
    }
    if word.contains(separates) {
        return within(word);
    }
    let parts = word.split_inclusive(SEPARATORS).map(|part| {
        let value = part.trim_end_matches(SEPARATORS);
        match value.split_once('=') {
            Some((name, value)) if is_secret(name) && !value.is_empty() => {
                format!("{name}={MASK}{}", &part[name.len() + 1 + value.len()..])
            }
            _ => part.to_owned(),
        }
    });
    without_user(&parts.collect::<String>())
}

/// Several words in one argument, such as a shell's script. Quotes separate them, too: scripts
/// stand in scripts.
fn within(text: &str) -> String {
    let mut masking = Masking::default();
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c| !separates(c)) {
        let (between, after) = rest.split_at(start);
        let quote = between.chars().next_back().filter(|c| QUOTES.contains(c));
        if shown.ends_with('=') && quote.is_some() {
            let name = shown.rsplit(separates).next().unwrap_or_default();
            if is_secret(name) {
                masking.next = Next::Secret;
            }
        }
        shown.push_str(between);
        let end = match (masking.next, quote) {
            (Next::Secret | Next::User, Some(quote)) => after.find(quote),
            (Next::Secrets, _) => after.find(QUOTES),
            _ => after.find(separates),
        };
        let (word, after) = after.split_at(end.unwrap_or(after.len()));
        shown.push_str(&masking.shown(word));
        rest = after;
    }
    shown + rest
}

fn separates(c: char) -> bool {
    c.is_whitespace() || QUOTES.contains(&c)
}

fn is_name(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':'))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// `https://user:word@host` as `https://***@host`, and `user:word@host` as `***@host`.
fn without_user(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        // A password may hold more of these.
        rest = match after.rfind('@') {
            Some(user) => {
                shown.push_str(MASK);
                &after[user..]
            }
            None => after,
        };
    }
    if shown.is_empty()
        && let Some((user, host)) = rest.rsplit_once('@')
        && user.contains(':')
        && !user.contains('/')
    {
        let name = user.split_once('=').map_or("", |(name, _)| name);
        let between = if name.is_empty() { "" } else { "=" };
        return format!("{name}{between}{MASK}@{host}");
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(|&it| it.to_owned()).collect()
    }

    #[test]
    fn what_looks_like_a_secret_is_masked() {
        for (command, expected) in [
            (&["serve", "--port", "80", "-v"][..], "serve --port 80 -v"),
            (&["a", "--password", "x", "b"], "a --password *** b"),
            (&["a", "--password=x=y&z"], "a --password=***"),
            (
                &["a", "--password", "--port", "80"],
                "a --password --port 80",
            ),
            (&["env", "DB_PASSWORD=x", "a"], "env DB_PASSWORD=*** a"),
            (&["env", "MYSQL_PWD=x", "a"], "env MYSQL_PWD=*** a"),
            (
                &["redis-server", "--requirepass", "x"],
                "redis-server --requirepass ***",
            ),
            (&["a", "token=x"], "a token=***"),
            (
                &["curl", "-H", "Authorization: Bearer x"],
                "curl -H Authorization: ***",
            ),
            (&["curl", "-u", "me:x", "h"], "curl -u *** h"),
            (&["docker", "run", "-u", "me", "h"], "docker run -u me h"),
            (
                &["a", "postgres://me:x@y@db/one"],
                "a postgres://***@db/one",
            ),
            (&["a", "me:x@tcp(db)/one"], "a ***@tcp(db)/one"),
            (&["a", "--dsn=me:x@tcp(db)/one"], "a --dsn=***@tcp(db)/one"),
            (
                &["a", "registry:5000/one@sha256:x"],
                "a registry:5000/one@sha256:x",
            ),
            (
                &["a", "http://h/p?page=2&token=x&n=1"],
                "a http://h/p?page=2&token=***&n=1",
            ),
            (
                &["a", "host=db password=x dbname=one"],
                "a host=db password=*** dbname=one",
            ),
            (&["a", "http://localhost:80/"], "a http://localhost:80/"),
            (&["", "é="], " é="),
        ] {
            let shown = without_secrets(&words(command)).join(" ");
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn a_secret_within_a_script_or_a_title_is_masked() {
        for (argument, expected) in [
            (
                "serve --password x  --port 80",
                "serve --password ***  --port 80",
            ),
            ("serve --password 'x y' -v", "serve --password '***' -v"),
            ("a 'Authorization: Bearer x' b", "a 'Authorization: ***' b"),
            ("bash -c 'a --token x'", "bash -c 'a --token ***'"),
            ("a password='x y' b", "a password='***' b"),
            ("a & curl http://me:x@h/ b", "a & curl http://***@h/ b"),
            ("don't ask for --password", "don't ask for --password"),
            (" \t ", " \t "),
        ] {
            assert_eq!(without_secrets(&words(&[argument])), [expected]);
        }
        let mut nested = "--token x".to_owned();
        for n in 0..8 {
            let quote = QUOTES[n % 2];
            nested = format!("sh -c {quote}{nested}{quote}");
        }
        let shown = without_secrets(&words(&[&nested])).concat();
        assert!(
            shown.contains("--token ***") && !shown.contains('x'),
            "{shown}"
        );
    }

    proptest! {
        #[test]
        fn any_words_do(command in prop::collection::vec("[-a=: '\"@/&é\t]{0,20}", 0..5)) {
            prop_assert_eq!(without_secrets(&command).len(), command.len());
        }

        /// Whatever stands around it.
        #[test]
        fn a_password_is_shown_nowhere(before in "[a-z -]{0,12}", after in "[a-z -]{0,12}") {
            let script = format!("{before} --password hunter2 {after}");
            let shown = without_secrets(&[script]).concat();
            prop_assert!(!shown.contains("hunter2"), "{}", shown);
        }
    }
}
