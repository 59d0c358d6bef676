//! Numbers and names of processes.

/// `1234`, of a process in a container `1234, 7 in its PID namespace`.
pub fn pid(pid: u32, inner: Option<u32>) -> String {
    match inner {
        None => pid.to_string(),
        Some(inner) => format!("{pid}, {inner} in its PID namespace"),
    }
}

/// Of a thread's or a process's name the kernel keeps so many bytes: `TASK_COMM_LEN` of
/// `include/linux/sched.h`, less the zero at its end.
pub const KEPT_NAME_BYTES: usize = 15;

/// A process's name without what it says of itself: programs write titles where the kernel keeps
/// the name of their file (`gunicorn: maste`, the first 15 bytes of `gunicorn: master [app]`).
pub fn process_name(name: &str) -> &str {
    let end = name
        .match_indices(':')
        .map(|(at, _)| at)
        .find(|at| matches!(name[at + 1..].chars().next(), None | Some(' ')));
    match end {
        Some(end @ 1..) => name[..end].trim_start_matches('['),
        _ => name,
    }
}

/// The name of a program by its command line, without folders and arguments: a process may call
/// itself a whole sentence (`nginx: master process /usr/sbin/nginx`).
pub fn program_name(command: &[String]) -> &str {
    let path = command.first().map_or("", String::as_str);
    let word = path.split_whitespace().next().unwrap_or_default();
    process_name(
        word.rsplit('/')
            .find(|part| !part.is_empty())
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_no_part_of_a_name() {
        for (name, expected) in [
            ("nginx", "nginx"),
            ("gunicorn: maste", "gunicorn"),
            ("puma 6.4.2 (tcp", "puma 6.4.2 (tcp"),
            ("php-fpm:", "php-fpm"),
            ("[celeryd: celer", "celeryd"),
            // Threads of Ruby are called after the line that made them.
            ("server.rb:71", "server.rb:71"),
            ("kworker/0:1-eve", "kworker/0:1-eve"),
            (": ", ": "),
            ("", ""),
        ] {
            assert_eq!(process_name(name), expected);
        }
    }

    #[test]
    fn a_program_has_a_name() {
        for (command, expected) in [
            (&["/usr/bin/serve", "--token", "x"][..], "serve"),
            (&["nginx: master process /usr/sbin/nginx"], "nginx"),
            (&["worker --token x"], "worker"),
            (&["[celeryd: celery@vm:MainProcess] -active-"], "celeryd"),
            (&["/srv/app/"], "app"),
            (&[""], ""),
            (&[], ""),
        ] {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(program_name(&command), expected);
        }
    }
}
