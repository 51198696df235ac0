//! bonnie++: keeps what it says, and reads the line of comma-separated values that it ends with.

use super::Note;
use crate::failure::Failure;

/// The file of a run that holds the line, complete, as `bon_csv2html` takes it.
pub(crate) const OUTPUT: &str = "bonnie.csv";
/// The file of a run that holds the table for people, too.
pub(crate) const TABLE: &str = "bonnie.txt";

/// The version of the line that is understood, which bonnie++ 1.98 to 2.00 write.
const FORMAT: &str = "1.98";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BonnieColumn {
    pub(crate) name: &'static str,
    /// `kB/s`, of 1024 bytes each, or `1/s`.
    pub(crate) unit: &'static str,
    /// Position in the line. The CPU time that it took follows it.
    at: usize,
}

const fn kb_s(name: &'static str, at: usize) -> BonnieColumn {
    BonnieColumn { name, unit: "kB/s", at }
}

const fn per_s(name: &'static str, at: usize) -> BonnieColumn {
    BonnieColumn { name, unit: "1/s", at }
}

/// Blocks written to a new file.
pub(crate) const WRITE: BonnieColumn = kb_s("write", 11);
/// Blocks read, changed and written back.
pub(crate) const REWRITE: BonnieColumn = kb_s("rewrite", 13);
/// Blocks read, right after they were written.
pub(crate) const READ: BonnieColumn = kb_s("read", 17);
/// Blocks read at random, one of ten of which is written back.
pub(crate) const SEEKS: BonnieColumn = per_s("seeks", 19);
/// Numbers that it may find, too.
pub(crate) const MORE: [BonnieColumn; 8] = [
    kb_s("write, per character", 9),
    kb_s("read, per character", 15),
    per_s("create, in order", 26),
    per_s("stat, in order", 28),
    per_s("delete, in order", 30),
    per_s("create, at random", 32),
    per_s("stat, at random", 34),
    per_s("delete, at random", 36),
];

/// Notes what it said: the table, and the line after it.
pub(crate) fn keep(said: &str, note: &mut Note) -> Result<(), Failure> {
    note.file(TABLE, said);
    let line = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    if fields(line).is_none() {
        let reason = format!("it does not end with a line of format {FORMAT}");
        return Err(Failure::gap("bonnie++", reason, "install version 1.98 or 2.00"));
    }
    note.file(OUTPUT, format!("{line}\n"));
    Ok(())
}

/// Reads a column; `None`: it was not measured, or was over too soon to be measured (`+++++`).
pub(crate) fn value(text: &str, column: BonnieColumn) -> Option<f64> {
    number(text, column.at)
}

/// The share of one core that it took, in percent.
pub(crate) fn cpu_percent(text: &str, column: BonnieColumn) -> Option<f64> {
    number(text, column.at + 1)
}

fn number(text: &str, at: usize) -> Option<f64> {
    fields(text)?.get(at)?.parse::<f64>().ok().filter(|number| number.is_finite())
}

fn fields(text: &str) -> Option<Vec<&str>> {
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    let fields: Vec<&str> = line.trim().split(',').collect();
    (fields.first() == Some(&FORMAT)).then_some(fields)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Stdio;

    use super::*;
    use crate::tool::Tool;

    /// Lines that bonnie++ 2.00a printed: a whole run, and one without characters and files.
    const WHOLE: &str = "1.98,2.00a,vm,1,1795327179,64M,,8192,5,715,99,54435,34,29092,31,1584,99,\
        +++++,+++,12176,297,1,,,,,3012,12,+++++,+++,+++++,+++,4113,17,+++++,+++,+++++,+++,13911us,\
        294us,167us,9024us,425us,4090us,285us,28us,2619us,980us,24us,766us\n";
    const FAST: &str = "1.98,2.00a,vm,1,1795327197,64M,,8192,5,,,54435,34,29092,31,,,73722,34,\
        12176,297,,,,,,,,,,,,,,,,,,,3485us,7197us,,2439us,3761us,,,,,,\n";

    #[test]
    fn what_was_measured_is_read_and_what_was_too_fast_is_not() {
        let mut note = Note::default();
        keep(&format!("Latency  1us\n\n{WHOLE}"), &mut note).expect("kept");
        assert_eq!(note.files[1], (OUTPUT.to_owned(), WHOLE.as_bytes().to_vec()));
        assert_eq!(keep("Latency 1us", &mut note).expect_err("cut off").ends, crate::Ends::Part);
        let four = |text| [WRITE, REWRITE, READ, SEEKS].map(|column| value(text, column));
        assert_eq!(four(WHOLE), [Some(54435.0), Some(29092.0), None, Some(12176.0)]);
        assert_eq!(four(FAST), [Some(54435.0), Some(29092.0), Some(73722.0), Some(12176.0)]);
        assert_eq!(cpu_percent(FAST, SEEKS), Some(297.0));
        let more = MORE.map(|column| value(WHOLE, column));
        let none = None;
        let created = [Some(3012.0), none, none, Some(4113.0), none, none];
        assert_eq!(more, [[Some(715.0), Some(1584.0)].as_slice(), &created].concat().as_slice());
        assert_eq!(MORE.map(|column| value(FAST, column)), [None; 8]);
    }

    #[test]
    fn what_is_not_from_bonnie_holds_no_numbers() {
        let other = WHOLE.replace("1.98,", "1.97,");
        let half = &FAST[..20];
        for text in ["", "\n", ",,,", "1.98", "é,1.98", &other, half, "1.98,x\nlast words\n"] {
            assert_eq!(value(text, WRITE), None, "{text}");
        }
        let odd = FAST.replace("54435", "inf").replace("29092", "nan");
        assert_eq!((value(&odd, WRITE), value(&odd, REWRITE)), (None, None));
    }

    #[test]
    fn the_lines_are_what_bon_csv2html_takes() {
        let Ok(tool) = Tool::find("bon_csv2html", "bonnie++") else {
            assert!(std::env::var_os("CI").is_none(), "it needs bonnie++");
            return eprintln!("SKIPPED: bon_csv2html is not installed");
        };
        let mut command = tool.command();
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(format!("{WHOLE}{FAST}").as_bytes()).expect("it listens");
        drop(stdin);
        let page = child.wait_with_output().expect("it ends").stdout;
        let page = String::from_utf8_lossy(&page);
        for number in ["12176", "297", "3012", "13911us"] {
            assert!(page.contains(number), "{number} is not in {page}");
        }
    }
}
