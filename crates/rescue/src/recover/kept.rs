//! Gathered facts as lines of text, for a search that is interrupted.

use std::fmt::Write as _;

use super::clues::Clue;
use super::ext4;
use super::marks::Harvest;
use super::remains::Remain;

/// No sector of a disk is beyond that.
const MOST: u64 = 1 << 58;

impl Harvest {
    /// One line for each thing that was found: a letter, then numbers.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (sector, structure, place) in &self.marks {
            let _ = writeln!(text, "m {sector} {structure} {place}");
        }
        for (sector, structure, clue) in &self.clues {
            let _ = match clue {
                Clue::Ext4(ext4::Ext4Clue::Inodes { first }) => {
                    writeln!(text, "i {sector} {structure} {first}")
                }
                Clue::Ext4(ext4::Ext4Clue::Directory { inode }) => {
                    writeln!(text, "d {sector} {structure} {inode}")
                }
                Clue::Ext4(ext4::Ext4Clue::Sums { blocks, inodes }) => {
                    writeln!(text, "s {sector} {structure} {blocks} {inodes}")
                }
                Clue::TreeBlock { logical } => writeln!(text, "t {sector} {structure} {logical}"),
                Clue::Record { number } => writeln!(text, "r {sector} {structure} {number}"),
            };
        }
        for (sector, remain) in &self.remains {
            let _ = writeln!(text, "x {sector} {}", remain.to_line());
        }
        for begins in &self.begins {
            let _ = writeln!(text, "b {begins}");
        }
        for (structure, facts) in &self.facts {
            for line in facts.to_lines() {
                let _ = writeln!(text, "f {structure} {line}");
            }
        }
        text
    }

    /// From such lines, for so many structures; `None` where they are none.
    #[must_use]
    pub fn from_text(text: &str, structures: usize) -> Option<Self> {
        let mut found = Self::default();
        for line in text.lines() {
            let (letter, rest) = line.split_once(' ')?;
            let numbers: Option<Vec<u64>> =
                rest.split(' ').map(|number| number.parse().ok()).collect();
            let numbers = numbers?;
            if numbers.iter().any(|number| *number > MOST) {
                return None;
            }
            if letter == "x" {
                found.remains.push((numbers[0], Remain::of_line(&numbers[1..])?));
                continue;
            }
            if let ("b", [begins]) = (letter, &numbers[..]) {
                found.note_beginning(*begins);
                continue;
            }
            let small = |index: usize| u32::try_from(*numbers.get(index)?).ok();
            let at = usize::from(letter != "f");
            let structure = usize::try_from(*numbers.get(at)?).ok()?;
            if structure >= structures {
                return None;
            }
            let clue = match letter {
                "m" => {
                    found.marks.push((numbers[0], structure, *numbers.get(2)?));
                    continue;
                }
                "f" => {
                    found.facts.entry(structure).or_default().take(&numbers[1..])?;
                    continue;
                }
                "i" => Clue::Ext4(ext4::Ext4Clue::Inodes { first: small(2)? }),
                "d" => Clue::Ext4(ext4::Ext4Clue::Directory { inode: small(2)? }),
                "s" => Clue::Ext4(ext4::Ext4Clue::Sums { blocks: small(2)?, inodes: small(3)? }),
                "t" => Clue::TreeBlock { logical: *numbers.get(2)? },
                "r" => Clue::Record { number: small(2)? },
                _ => return None,
            };
            found.clues.push((numbers[0], structure, clue));
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_it_was_written() {
        let text = "m 1 0 2\ni 3 1 17\nd 4 1 18\ns 5 1 19 20\nt 6 1 4294967296\nr 7 1 21\n\
             x 16 0 7 2048\nx 24 2\nb 2304\n\
             f 1 7 8 9 10 4294967296 3\nf 1 11 281474976710656\nf 1 4 5 6 7\nf 1 1 2 3\n";
        let found = Harvest::from_text(text, 2).unwrap();
        assert_eq!(found.to_text(), text);
        for wrong in [
            "m 1 2 3",
            "m 1",
            "z 1 1 1",
            "x 1 1 4294967296",
            "i 1 1 4294967296",
            "f 1 1",
            "m a 0 1",
            "m 1 0 288230376151711745",
            "\n",
        ] {
            assert!(Harvest::from_text(wrong, 2).is_none(), "{wrong}");
        }
    }
}
