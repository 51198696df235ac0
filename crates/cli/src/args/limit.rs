//! Limits of background work as people type them: a speed, and maybe others at times of the day.

use braid_array::Refusal;
use braid_host::limits::{DAY, DailyWindow, Limit};

use super::Size;
use super::size::{parse_limit, parse_size};

const WINDOWS: &str = "write SPEED@FROM-UNTIL=SPEED with times from 00:00 to 24:00, as in \
                       200M@22:00-06:00=none; further FROM-UNTIL=SPEED follow a comma";

/// Reads what is to be kept up.
pub(crate) fn parse_min(text: &str) -> Result<Limit, Refusal> {
    parse(text, &parse_size)
}

/// Reads what is never to be exceeded: `none` is no limit.
pub(crate) fn parse_max(text: &str) -> Result<Limit, Refusal> {
    parse(text, &parse_limit)
}

fn parse(text: &str, speed: &dyn Fn(&str) -> Result<Size, Refusal>) -> Result<Limit, Refusal> {
    let (usual, others) = match text.split_once('@') {
        Some((usual, others)) => (usual, Some(others)),
        None => (text, None),
    };
    let usual = speed(usual)?.0;
    let windows = others.into_iter().flat_map(|others| others.split(','));
    let windows = windows.map(|text| window(text, speed)).collect::<Result<Vec<_>, _>>()?;
    for (index, window) in windows.iter().enumerate() {
        if let Some(other) = windows[..index].iter().find(|other| overlap(other, window)) {
            let reason = format!("{} and {} overlap", times(other), times(window));
            return Err(Refusal::new(reason, "let each begin when the one before it has ended"));
        }
    }
    Ok(Limit { usual, windows })
}

fn window(
    text: &str,
    speed: &dyn Fn(&str) -> Result<Size, Refusal>,
) -> Result<DailyWindow, Refusal> {
    let none = || Refusal::new(format!("'{text}' is no FROM-UNTIL=SPEED"), WINDOWS);
    let (times, bytes_per_s) = text.split_once('=').ok_or_else(none)?;
    let (from, until) = times.split_once('-').ok_or_else(none)?;
    let from = minute(from).filter(|from| *from < DAY).ok_or_else(none)?;
    let until = minute(until).ok_or_else(none)?;
    if from == until {
        return Err(Refusal::new(format!("'{text}' ends when it begins"), WINDOWS));
    }
    Ok(DailyWindow { from, until, bytes_per_s: speed(bytes_per_s)?.0 })
}

/// `HH:MM` as the minute of the day.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |digits: &str, most: u16| {
        let plain = digits.len() <= 2 && digits.bytes().all(|digit| digit.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|number| plain && *number <= most)
    };
    let minute = number(hours, 24)? * 60 + number(minutes, 59)?;
    (minute <= DAY).then_some(minute)
}

fn overlap(one: &DailyWindow, other: &DailyWindow) -> bool {
    one.holds(other.from) || other.holds(one.from)
}

fn times(window: &DailyWindow) -> String {
    let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
    format!("{}-{}", clock(window.from), clock(window.until))
}

/// As it is typed.
pub(crate) fn shown(limit: &Limit) -> String {
    let speed = |bytes: u64| match bytes {
        u64::MAX => "none".to_owned(),
        bytes => Size(bytes).to_string(),
    };
    let windows = limit.windows.iter();
    let windows = windows.map(|one| format!("{}={}", times(one), speed(one.bytes_per_s)));
    let windows: Vec<String> = windows.collect();
    let at = if windows.is_empty() { "" } else { "@" };
    format!("{}{at}{}", speed(limit.usual), windows.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_written() {
        for text in ["200M", "none", "200M@22:00-06:00=none", "1M@00:00-05:30=2M,12:00-24:00=0"] {
            assert_eq!(shown(&parse_max(text).unwrap()), text);
        }
        let limit = parse_max("200M@22:00-6:00=none").unwrap();
        let night = DailyWindow { from: 22 * 60, until: 6 * 60, bytes_per_s: u64::MAX };
        assert_eq!(limit, Limit { usual: 200 << 20, windows: vec![night] });
        assert_eq!(parse_min("5").unwrap(), Limit { usual: 5, windows: Vec::new() });
    }

    #[test]
    fn what_is_no_limit_is_refused_with_what_would_be_one() {
        for text in [
            "200M@",
            "200M@22:00=5M",
            "200M@22-06=5M",
            "200M@22:60-06:00=5M",
            "1@24:01-1:00=1",
            "1@24:00-1:00=1",
            "200M@22:00-06:00=x",
            "none@",
            "1@1:00-1:00=2",
            "x@1:00-2:00=1",
        ] {
            let why = parse_max(text).unwrap_err();
            assert!(!why.next.advice.is_empty(), "{text}: {why}");
        }
        assert!(parse_min("none").is_err());
        let why = parse_max("1M@22:00-06:00=2M,05:00-07:00=3M").unwrap_err();
        assert!(why.reason.contains("22:00-06:00 and 05:00-07:00 overlap"), "{why}");
    }
}
