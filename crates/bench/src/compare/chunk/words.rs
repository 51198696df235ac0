//! Numbers and sizes as the tables and sentences have them.

use crate::model::{Cell, Chapter};

/// `4K`, `1M`, as fio and mdadm write sizes.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ => format!("{}K", bytes >> 10),
    }
}

/// Three digits that say something.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The median of a cell, with a mark if its rounds lie too far apart.
pub(super) fn median(cell: Option<&Cell>) -> String {
    cell.map_or_else(|| "-".to_owned(), |cell| marked(number(cell.spread.median), cell.noisy))
}

/// The ratio of a cell.
pub(super) fn ratio(cell: Option<&Cell>) -> String {
    let ratio = cell.and_then(|cell| Some(marked(number(cell.ratio?), cell.noisy)));
    ratio.unwrap_or_else(|| "-".to_owned())
}

fn marked(text: String, noisy: bool) -> String {
    if noisy { text + "~" } else { text }
}

/// The cell of a case and a job.
pub(super) fn cell<'a>(chapter: &'a Chapter, case: &str, job: &str) -> Option<&'a Cell> {
    chapter.cells.iter().find(|cell| cell.case == case && cell.job == job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_are_short() {
        let sizes = [4096, 1 << 20, 1000 << 20, 3 << 30].map(size);
        assert_eq!(sizes, ["4K", "1M", "1000M", "3G"]);
        assert_eq!([1234.5, 45.67, 0.724].map(number), ["1234", "45.7", "0.72"]);
        assert_eq!(median(None), "-");
    }
}
