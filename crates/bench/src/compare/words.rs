//! Numbers, sizes and names as tables and sentences have them.

pub(super) use braid_host::size::typed as size;

use crate::model::{Measured, Spread};

/// Makes enums whose variants have names, as they are typed, kept and shown.
macro_rules! names {
    ($($(#[$doc:meta])* $vis:vis enum $name:ident {
        $($(#[$each:meta])* $variant:ident = $word:literal,)+
    })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[derive(serde::Serialize, serde::Deserialize, clap::ValueEnum)]
        $vis enum $name {
            $($(#[$each])* #[serde(rename = $word)] #[value(name = $word)] $variant,)+
        }

        impl $name {
            /// All there are.
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Name as it is typed.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    )+};
}

pub(super) use names;

/// Word of a table where nothing was measured.
pub(super) const NOTHING: &str = "-";

/// Three digits, or as many as there are before the point.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A value in words, where there is one.
pub(super) fn word<T>(value: Option<T>, word: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), word)
}

/// A number that may not be there.
pub(super) fn plain(value: Option<f64>) -> String {
    word(value, number)
}

/// A median in other words than [`number`] has, marked where the rounds lie far apart.
pub(super) fn median_as(spread: Option<Spread>, number: impl Fn(f64) -> String) -> String {
    word(spread, |spread| marked(number(spread.median), spread.is_noisy()))
}

/// A text with the mark of numbers whose rounds lie far apart.
pub(super) fn marked(text: String, noisy: bool) -> String {
    if noisy { text + "~" } else { text }
}

/// A median, marked where the rounds lie far apart.
pub(super) fn median(spread: Option<Spread>) -> String {
    median_as(spread, number)
}

/// A median with the least and the most of several rounds.
pub(super) fn with_range(measured: Option<&Measured>) -> String {
    let Some(Measured { spread, runs, .. }) = measured else { return NOTHING.to_owned() };
    let median = number(spread.median);
    if *runs < 2 {
        return median;
    }
    format!("{median} ({}-{})", number(spread.min), number(spread.max))
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(words: impl IntoIterator<Item = String>) -> String {
    let words: Vec<String> = words.into_iter().collect();
    match words.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The least and the most.
pub(super) fn range(numbers: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.into_iter().fold(None, |found, number| {
        let (low, high) = found.unwrap_or((number, number));
        Some((low.min(number), high.max(number)))
    })
}

/// `0.95 to 0.98`, or one number if both are written alike.
pub(super) fn between((low, high): (f64, f64), word: impl Fn(f64) -> String) -> String {
    let low = word(low);
    let high = word(high);
    if low == high { low } else { format!("{low} to {high}") }
}

/// Two digits after the point.
pub(super) fn two(value: f64) -> String {
    format!("{value:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists_are_short() {
        assert_eq!([1234.5, 45.67, 0.724].map(number), ["1234", "45.7", "0.72"]);
        assert_eq!((plain(None), median(None)), ("-".to_owned(), "-".to_owned()));
        assert_eq!(list(["a", "b", "c"].map(str::to_owned)), "a, b and c");
        assert_eq!(
            range([2.0, 1.0, 3.0]).map(|both| between(both, two)),
            Some("1.00 to 3.00".into())
        );
        assert_eq!(between((0.951, 0.949), two), "0.95");
    }
}
