//! Days, for what is allowed until one.

use std::fmt;

/// A day of the Gregorian calendar. Ordered as days are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// The year.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
}

impl Date {
    /// `2027-01-31`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut number = |digits: usize| {
            let part = parts.next()?;
            let whole = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
            if whole {
                part.parse::<u16>().ok()
            } else {
                None
            }
        };
        let (year, month, day) = (number(4)?, number(2)?, number(2)?);
        if parts.next().is_some() {
            return None;
        }
        Self::new(year, u8::try_from(month).ok()?, u8::try_from(day).ok()?)
    }

    /// A day; `None` if there is none of that number.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let leap =
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            1..=12 => 31,
            _ => return None,
        };
        (1..=days)
            .contains(&day)
            .then_some(Self { year, month, day })
    }

    /// The day of a time in seconds since 1970, UTC.
    pub fn of_unix(seconds: u64) -> Self {
        // Days are counted from 0000-03-01, so that the leap day is a year's last (Hinnant,
        // "chrono-compatible low-level date algorithms").
        let days = seconds / 86_400 + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (year, month) = (era * 400 + year + month / 10, (month + 2) % 12 + 1);
        Self {
            year: u16::try_from(year).unwrap_or(u16::MAX),
            month: month as u8,
            day: day as u8,
        }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        assert_eq!(Date::parse("2024-02-29"), Date::new(2024, 2, 29));
        for wrong in [
            "",
            "2023-02-29",
            "2024-13-01",
            "2024-1-01",
            "2024-01-00",
            "2024-01-01-",
            "+024-01-01",
            "2024-01",
        ] {
            assert_eq!(Date::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Date::of_unix(951_782_400).to_string(), "2000-02-29");
        assert_eq!(Date::of_unix(0).to_string(), "1970-01-01");
        assert!(Date::parse("2026-12-31") < Date::parse("2027-01-01"));
        let _ = Date::of_unix(u64::MAX);
    }
}
