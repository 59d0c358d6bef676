//! Command lines without what is nobody else's business. A recording has all of it; reports and
//! packed recordings go into tickets.

/// Parts of the names of options and variables that hold a secret.
const SECRET: [&str; 10] = [
    "pass",
    "secret",
    "token",
    "auth",
    "credential",
    "apikey",
    "api-key",
    "api_key",
    "private-key",
    "private_key",
];
const MASK: &str = "***";
/// What separates several values in one argument, as in a URL or a connection string.
const SEPARATORS: [char; 5] = ['&', '?', ';', ',', ' '];

/// A command line, with what looks like a secret masked: `--password X`, `TOKEN=X`, the user and
/// password of a URL.
pub fn without_secrets(command: &[String]) -> Vec<String> {
    let mut shown = Vec::with_capacity(command.len());
    let mut after_name = false;
    for argument in command {
        let is_option = argument.starts_with('-');
        shown.push(match after_name && !is_option {
            true => MASK.to_owned(),
            false => masked(argument),
        });
        after_name = is_option && !argument.contains('=') && is_secret(argument);
    }
    shown
}

fn masked(argument: &str) -> String {
    // All of a value: it may hold anything.
    if let Some((name, value)) = argument.split_once('=')
        && is_name(name)
        && is_secret(name)
        && !value.is_empty()
    {
        return format!("{name}={MASK}");
    }
    // `Authorization: Bearer X`
    if let Some((name, value)) = argument.split_once(": ")
        && is_name(name)
        && is_secret(name)
        && !value.is_empty()
    {
        return format!("{name}: {MASK}");
    }
    let parts = argument.split_inclusive(SEPARATORS).map(|part| {
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

fn is_name(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':'))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// `https://user:word@host` as `https://***@host`.
fn without_user(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        // A password may hold more of these.
        rest = match after[..end].rfind('@') {
            Some(user) => {
                shown.push_str(MASK);
                &after[user..]
            }
            None => after,
        };
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

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
            (
                &["redis-server", "--requirepass", "x"],
                "redis-server --requirepass ***",
            ),
            (&["a", "token=x"], "a token=***"),
            (
                &["curl", "-H", "Authorization: Bearer x"],
                "curl -H Authorization: ***",
            ),
            (
                &["a", "postgres://me:x@y@db/one"],
                "a postgres://***@db/one",
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
            let command: Vec<String> = command.iter().map(|&it| it.to_owned()).collect();
            assert_eq!(without_secrets(&command).join(" "), expected);
        }
    }
}
