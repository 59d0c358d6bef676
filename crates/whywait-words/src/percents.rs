//! Shares of a whole, and changes.

/// A share in percent: `44 %`, `5.3 %`, `99.7 %`. Never makes nothing of something, nor all of
/// nearly all.
pub fn percent(part: u64, total: u64) -> String {
    match (part, total) {
        (_, 0) => "-".to_owned(),
        (0, _) => "0 %".to_owned(),
        _ if part >= total => "100 %".to_owned(),
        _ => match rounded(part, total, 1_000) {
            0 => "<0.1 %".to_owned(),
            1_000.. => ">99.9 %".to_owned(),
            permille @ (..100 | 991..) => format!("{}.{} %", permille / 10, permille % 10),
            _ => format!("{} %", rounded(part, total, 100)),
        },
    }
}

/// A share in whole percent, to decide on; 100 only when it is all of it.
pub fn whole_percent(part: u64, total: u64) -> u64 {
    match part >= total {
        true => 100,
        false => rounded(part, total, 100).min(99),
    }
}

/// How many of `parts` equal parts of the total that is.
fn rounded(part: u64, total: u64, parts: u64) -> u64 {
    let of = (u128::from(part) * u128::from(parts) + u128::from(total) / 2) / u128::from(total);
    of as u64
}

/// A ratio as [`percent`] writes it.
pub fn ratio_percent(ratio: f64) -> String {
    const SCALE: f64 = 1e9;
    percent((ratio.clamp(0.0, 1.0) * SCALE) as u64, SCALE as u64)
}

/// A share between two bounds: `2.0 to 97 %`, or one figure where they hardly differ.
pub fn percent_range(at_least: u64, at_most: u64, total: u64) -> String {
    let most = percent(at_most, total);
    let close = u128::from(at_most.saturating_sub(at_least)) * 200 <= u128::from(total);
    match (at_least, close) {
        (_, true) => most,
        (0, false) => format!("0 to {most}"),
        (_, false) => {
            let least = percent(at_least, total);
            format!("{} to {most}", least.trim_end_matches([' ', '%']))
        }
    }
}

/// A change in percent with its sign: `+68 %`, `-2.1 %`; beyond tenfold as a multiple: `x 25`.
pub fn percent_change(relative: f64) -> String {
    if !relative.is_finite() {
        return "-".to_owned();
    }
    let percent = relative * 100.0;
    match percent.abs() {
        0.0..0.05 => "0 %".to_owned(),
        0.05..9.95 => format!("{percent:+.1} %"),
        900.0.. if relative > 0.0 => format!("x {:.0}", relative + 1.0),
        _ => format!("{percent:+.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_do_not_hide_the_ends() {
        for (part, total, text) in [
            (0, 0, "-"),
            (0, 9, "0 %"),
            (1, 1_000_000, "<0.1 %"),
            (53, 1_000, "5.3 %"),
            (9_949, 100_000, "9.9 %"),
            (9_950, 100_000, "10 %"),
            (444, 1_000, "44 %"),
            (9_904, 10_000, "99 %"),
            (9_906, 10_000, "99.1 %"),
            (999_999, 1_000_000, ">99.9 %"),
            (7, 7, "100 %"),
        ] {
            assert_eq!(percent(part, total), text);
        }
        assert_eq!(ratio_percent(1.0), "100 %");
        assert_eq!(ratio_percent(0.9999), ">99.9 %");
    }

    #[test]
    fn a_hundred_whole_percent_is_all_of_it() {
        assert_eq!(
            [995, 999, 1_000].map(|part| whole_percent(part, 1_000)),
            [99, 99, 100]
        );
        assert_eq!(whole_percent(0, 0), 100);
    }

    #[test]
    fn bounds_are_one_figure_where_they_hardly_differ() {
        for (least, most, text) in [
            (0, 500, "0 to 50 %"),
            (20, 970, "2.0 to 97 %"),
            (500, 505, "51 %"),
            (960, 961, "96 %"),
            (0, 0, "0 %"),
        ] {
            assert_eq!(percent_range(least, most, 1_000), text);
        }
    }

    #[test]
    fn changes_have_a_sign() {
        for (relative, text) in [
            (0.0, "0 %"),
            (0.682, "+68 %"),
            (-0.0213, "-2.1 %"),
            (24.0, "x 25"),
            (-24.0, "-2400 %"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(percent_change(relative), text);
        }
    }
}
