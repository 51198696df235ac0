//! The map file of ddrescue, which says what could be read of a disk when its image was made (GNU
//! ddrescue's manual, "Mapfile structure").
//!
//! Lines of text; from a `#` on they are comments. The first other line is ddrescue's own status:
//! a position, a letter, and the number of a pass in newer versions. Each further line is a block:
//! position and size in bytes, and what became of it. Numbers are written as in C: decimal,
//! hexadecimal after `0x`, octal after `0`.

use std::ops::Range;

/// The most ranges that a map may have: one for each bad sector of a disk that is worth an image.
pub const MAX_RANGES: usize = 1 << 20;

/// The state of an image by a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFile {
    unrescued: Vec<Range<u64>>,
    size_bytes: u64,
}

/// The reason for which a text is no map that can be trusted; line numbers count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapFileError {
    /// There is no status line: it was cut off, or is another file.
    #[error("there is no status line: it is no map file of ddrescue, or nothing is left of it")]
    NoStatus,
    /// A line has other fields than it should.
    #[error("line {line}: {wanted} expected, not \"{found}\"")]
    Field {
        /// The line.
        line: usize,
        /// The text that should be there.
        wanted: &'static str,
        /// The text that is there, shortened.
        found: String,
    },
    /// A block begins before the one before it has ended.
    #[error("line {line}: the block at {position} begins before the one above ends, at {end}")]
    Order {
        /// The line.
        line: usize,
        /// Where the block begins.
        position: u64,
        /// Where the one above ends.
        end: u64,
    },
    /// A block ends where no disk does.
    #[error("line {line}: the block at {position} ends beyond any disk")]
    Beyond {
        /// The line.
        line: usize,
        /// Where the block begins.
        position: u64,
    },
    /// More ranges than are taken.
    #[error("line {line}: more than {MAX_RANGES} ranges were not rescued")]
    TooMany {
        /// The line with which there are too many.
        line: usize,
    },
}

impl MapFile {
    /// Reads the map of an image of `size_bytes`. Ranges that it does not mention were not rescued;
    /// ranges beyond the image's end do not matter.
    ///
    /// # Errors
    /// [`MapFileError`]: of a map that is not understood nothing is taken, since what it calls
    /// good would be believed.
    pub fn parse(text: &[u8], size_bytes: u64) -> Result<Self, MapFileError> {
        let mut map = Self { unrescued: Vec::new(), size_bytes };
        let mut has_status = false;
        let mut end = 0;
        for (index, bytes) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = Line { number: index + 1, bytes };
            let mut fields = line.fields();
            let Some(first) = fields.next() else { continue };
            if !has_status {
                line.status(first, &mut fields)?;
                has_status = true;
                continue;
            }
            let block = line.block(first, &mut fields)?;
            if block.range.start < end {
                let position = block.range.start;
                return Err(MapFileError::Order { line: line.number, position, end });
            }
            let from = if block.rescued { block.range.start } else { block.range.end };
            map.lose(end..from, line.number)?;
            end = block.range.end;
        }
        if !has_status {
            return Err(MapFileError::NoStatus);
        }
        map.lose(end..size_bytes, text.split(|byte| *byte == b'\n').count())?;
        Ok(map)
    }

    /// The map of an image of which all was rescued.
    #[must_use]
    pub const fn all_rescued(size_bytes: u64) -> Self {
        Self { unrescued: Vec::new(), size_bytes }
    }

    /// The same of a longer disk, of which the image lacks what is behind its end.
    #[must_use]
    pub fn of_longer(mut self, size_bytes: u64) -> Self {
        match self.unrescued.last_mut() {
            Some(last) if last.end == self.size_bytes => last.end = size_bytes,
            _ => self.unrescued.push(self.size_bytes..size_bytes),
        }
        Self { size_bytes, ..self }
    }

    /// The ranges that were not rescued, in bytes of the image: sorted, disjoint, not adjacent,
    /// none empty.
    #[must_use]
    pub fn unrescued(&self) -> &[Range<u64>] {
        &self.unrescued
    }

    /// Returns whether any of this range was not rescued.
    #[must_use]
    pub fn is_missing(&self, range: &Range<u64>) -> bool {
        let after = self.unrescued.partition_point(|lost| lost.end <= range.start);
        self.unrescued.get(after).is_some_and(|lost| lost.start < range.end)
    }

    fn lose(&mut self, lost: Range<u64>, line: usize) -> Result<(), MapFileError> {
        let lost = lost.start..lost.end.min(self.size_bytes);
        if lost.is_empty() {
            return Ok(());
        }
        if let Some(before) = self.unrescued.last_mut()
            && before.end == lost.start
        {
            before.end = lost.end;
            return Ok(());
        }
        if self.unrescued.len() == MAX_RANGES {
            return Err(MapFileError::TooMany { line });
        }
        self.unrescued.push(lost);
        Ok(())
    }
}

/// A block of the map.
struct Block {
    range: Range<u64>,
    rescued: bool,
}

/// A line of the map.
struct Line<'a> {
    number: usize,
    bytes: &'a [u8],
}

impl<'a> Line<'a> {
    /// Its words, without the comment.
    fn fields(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let fields = self.bytes.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        fields.take_while(|field| !field.starts_with(b"#"))
    }

    /// Checks that it is a status line; what it says matters to ddrescue only.
    fn status(
        &self,
        position: &[u8],
        rest: &mut dyn Iterator<Item = &'a [u8]>,
    ) -> Result<(), MapFileError> {
        number(position).ok_or_else(|| self.wants("the position of the status line", position))?;
        let status = rest.next().unwrap_or_default();
        if !matches!(status, [b'?' | b'*' | b'/' | b'-' | b'F' | b'G' | b'+']) {
            return Err(self.wants("the status, one of ?*/-FG+,", status));
        }
        if let Some(pass) = rest.next()
            && number(pass).is_none()
        {
            return Err(self.wants("the number of the pass", pass));
        }
        self.end(rest)
    }

    fn block(
        &self,
        position: &[u8],
        rest: &mut dyn Iterator<Item = &'a [u8]>,
    ) -> Result<Block, MapFileError> {
        let start = number(position).ok_or_else(|| self.wants("a position", position))?;
        let size = rest.next().unwrap_or_default();
        let size = number(size).ok_or_else(|| self.wants("a size", size))?;
        let status = rest.next().unwrap_or_default();
        let rescued = match status {
            b"+" => true,
            b"?" | b"*" | b"/" | b"-" => false,
            _ => return Err(self.wants("the block's status, one of ?*/-+,", status)),
        };
        self.end(rest)?;
        let beyond = MapFileError::Beyond { line: self.number, position: start };
        let end = start.checked_add(size).ok_or(beyond)?;
        Ok(Block { range: start..end, rescued })
    }

    fn end(&self, rest: &mut dyn Iterator<Item = &'a [u8]>) -> Result<(), MapFileError> {
        rest.next().map_or(Ok(()), |field| Err(self.wants("the end of the line", field)))
    }

    fn wants(&self, wanted: &'static str, found: &[u8]) -> MapFileError {
        let found = &found[..found.len().min(20)];
        MapFileError::Field { line: self.number, wanted, found: found.escape_ascii().to_string() }
    }
}

/// A number as C writes it.
fn number(field: &[u8]) -> Option<u64> {
    let (digits, radix) = match field {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
        digits => (digits, 10),
    };
    // `from_str_radix` takes a sign, which no position has.
    let text = str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::{MAX_RANGES, MapFile, MapFileError};

    /// The blocks of the manual's example.
    const EXAMPLE: &str = "\
        # Mapfile. Created by GNU ddrescue version 1.28\n\
        # Command line: ddrescue -d -c18 /dev/fd0 fdimage mapfile\n\
        # Start time:   2024-01-20 17:31:14\n\
        # Copying non-tried blocks... Pass 1 (forwards)\n\
        # current_pos  current_status  current_pass\n\
        0x00120000     ?               1\n\
        #      pos        size  status\n\
        0x00000000  0x00117000  +\n\
        0x00117000  0x00000200  -\n\
        0x00117200  0x00001000  /\n\
        0x00118200  0x00007E00  *\n\
        0x00120000  0x00048000  ?\n";

    fn parsed(text: &str, size_bytes: u64) -> Vec<std::ops::Range<u64>> {
        MapFile::parse(text.as_bytes(), size_bytes).unwrap().unrescued().to_vec()
    }

    #[test]
    fn what_was_not_rescued_is_one_range_whatever_became_of_it() {
        assert_eq!(parsed(EXAMPLE, 0x16_8000), [0x11_7000..0x16_8000]);
        // The image may be longer than the map knows, or shorter.
        assert_eq!(parsed(EXAMPLE, 0x20_0000), [0x11_7000..0x20_0000]);
        assert_eq!(parsed(EXAMPLE, 0x11_7100), [0x11_7000..0x11_7100]);
        assert_eq!(parsed(EXAMPLE, 0x1000), []);
    }

    #[test]
    fn what_the_map_does_not_cover_was_not_rescued() {
        let text = "0 +\r\n010 0x8 + # octal\r\n\n32 16 +\n48 16 -\n64 4 +\n68 4 +\n";
        assert_eq!(parsed(text, 80), [0..8, 16..32, 48..64, 72..80]);
        assert_eq!(parsed("0 ?\n", 10), [0..10]);
        assert_eq!(parsed("0 ?", 0), []);
        let map = MapFile::parse(text.as_bytes(), 80).unwrap();
        for (range, missing) in
            [(0..1, true), (8..16, false), (15..17, true), (31..32, true), (32..48, false)]
        {
            assert_eq!(map.is_missing(&range), missing, "{range:?}");
        }
        assert!(!map.is_missing(&(80..90)) && map.is_missing(&(79..90)));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let told = |text: &str| MapFile::parse(text.as_bytes(), 100).unwrap_err().to_string();
        assert!(told("# nothing\n\n").starts_with("there is no status line"));
        assert_eq!(
            told("hello world\n"),
            "line 1: the position of the status line expected, not \"hello\""
        );
        assert_eq!(told("#\n0 + 1 2"), "line 2: the end of the line expected, not \"2\"");
        assert_eq!(told("0 x"), "line 1: the status, one of ?*/-FG+, expected, not \"x\"");
        assert_eq!(told("0 ++"), "line 1: the status, one of ?*/-FG+, expected, not \"++\"");
        assert_eq!(told("0 + two"), "line 1: the number of the pass expected, not \"two\"");
        assert_eq!(told("0 +\n1 9z +"), "line 2: a size expected, not \"9z\"");
        assert_eq!(told("0 +\n-1 9 +"), "line 2: a position expected, not \"-1\"");
        assert_eq!(told("0 +\n+1 9 +"), "line 2: a position expected, not \"+1\"");
        assert_eq!(told("0 +\n0x 9 +"), "line 2: a position expected, not \"0x\"");
        assert_eq!(told("0 +\n08 9 +"), "line 2: a position expected, not \"08\"");
        assert_eq!(
            told("0 +\n0 8 \x1b[2J"),
            "line 2: the block's status, one of ?*/-+, expected, not \"\\x1b[2J\""
        );
        assert_eq!(
            told("0 +\n0 8 +\n7 1 -"),
            "line 3: the block at 7 begins before the one above ends, at 8"
        );
        assert_eq!(
            told("0 +\n1 0xffffffffffffffff +"),
            "line 2: the block at 1 ends beyond any disk"
        );
    }

    #[test]
    fn ranges_are_bounded() {
        let mut text = String::from("0 +\n");
        for index in 0..=MAX_RANGES {
            text += &format!("{} 1 +\n", 2 * index + 1);
        }
        let error = MapFile::parse(text.as_bytes(), u64::MAX).unwrap_err();
        assert_eq!(error, MapFileError::TooMany { line: MAX_RANGES + 2 });
    }
}
