//! The language of LVM's configuration and metadata: `key = value` and `key { … }`, comments from
//! `#` to the end of the line (lvm.conf(5), and `libdm/libdm-config.c` of LVM2).

use crate::bytes::printable;

/// Sections and lists within one another; metadata has five.
const MAX_DEPTH: usize = 16;

/// Keys and values in all: a megabyte of text has a tenth of that.
const MAX_NODES: usize = 1 << 20;

/// The value of a key.
#[derive(Debug, PartialEq)]
pub(super) enum Node {
    Section(Section),
    Number(i64),
    Text(String),
    List(Vec<Self>),
}

/// Keys in their order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Section(Vec<(String, Node)>);

/// Where a text is not what it should be; lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the text: {what}")]
pub struct ConfigError {
    /// The line.
    pub line: usize,
    /// The error there.
    pub what: &'static str,
}

impl Section {
    /// The sections in it.
    pub(super) fn sections(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().filter_map(|(key, node)| match node {
            Node::Section(section) => Some((key.as_str(), section)),
            _ => None,
        })
    }

    pub(super) fn section(&self, key: &str) -> Option<&Self> {
        self.sections().find(|(name, _)| *name == key).map(|(_, section)| section)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number that counts something.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Node::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn list(&self, key: &str) -> Option<&[Node]> {
        match self.get(key)? {
            Node::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns whether this text is in the list of that name.
    pub(super) fn has(&self, key: &str, text: &str) -> bool {
        let is_it = |node: &Node| matches!(node, Node::Text(found) if found == text);
        self.list(key).is_some_and(|list| list.iter().any(is_it))
    }

    fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }
}

/// Reads a text up to its end or to the first zero.
pub(super) fn parse(text: &[u8]) -> Result<Section, ConfigError> {
    let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let mut parser = Parser { rest: &text[..length], line: 1, nodes: 0 };
    let section = parser.section(0)?;
    parser.skip();
    if parser.rest.is_empty() { Ok(section) } else { Err(parser.wrong("a } too many")) }
}

struct Parser<'a> {
    rest: &'a [u8],
    line: usize,
    nodes: usize,
}

impl<'a> Parser<'a> {
    fn wrong(&self, what: &'static str) -> ConfigError {
        ConfigError { line: self.line, what }
    }

    /// Passes over white space and comments.
    fn skip(&mut self) {
        while let [first, rest @ ..] = self.rest {
            match first {
                b'\n' => self.line += 1,
                b'#' => {
                    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                    self.rest = &rest[end..];
                    continue;
                }
                byte if byte.is_ascii_whitespace() => {}
                _ => return,
            }
            self.rest = rest;
        }
    }

    /// Takes this character if it is what comes next.
    fn take(&mut self, character: u8) -> bool {
        self.skip();
        let found = self.rest.first() == Some(&character);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    /// A word: what keys and numbers are made of.
    fn word(&mut self) -> &'a [u8] {
        let of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.+-/@:!".contains(byte);
        let length = self.rest.iter().position(|byte| !of_word(byte)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        word
    }

    /// Entries up to a `}` or the end of the text, which stay.
    fn section(&mut self, depth: usize) -> Result<Section, ConfigError> {
        let mut entries = Vec::new();
        loop {
            self.skip();
            if matches!(self.rest, [] | [b'}', ..]) {
                return Ok(Section(entries));
            }
            let key = if self.rest.starts_with(b"\"") {
                self.string()?
            } else {
                String::from_utf8_lossy(self.word()).into_owned()
            };
            if key.is_empty() {
                return Err(self.wrong("a key expected"));
            }
            let node = if self.take(b'=') { self.value(depth)? } else { self.block(depth)? };
            entries.push((key, node));
        }
    }

    fn block(&mut self, depth: usize) -> Result<Node, ConfigError> {
        if !self.take(b'{') {
            return Err(self.wrong("= or { expected"));
        }
        self.count(depth)?;
        let section = self.section(depth + 1)?;
        if self.take(b'}') { Ok(Node::Section(section)) } else { Err(self.wrong("} expected")) }
    }

    fn value(&mut self, depth: usize) -> Result<Node, ConfigError> {
        self.count(depth)?;
        self.skip();
        match self.rest.first() {
            Some(b'"') => self.string().map(Node::Text),
            Some(b'[') => self.list(depth),
            _ => {
                let word = str::from_utf8(self.word()).unwrap_or_default();
                word.parse().map(Node::Number).map_err(|_| self.wrong("a value expected"))
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Node, ConfigError> {
        self.rest = &self.rest[1..];
        let mut list = Vec::new();
        while !self.take(b']') {
            list.push(self.value(depth + 1)?);
            if !self.take(b',') {
                self.skip();
                if !self.rest.starts_with(b"]") {
                    return Err(self.wrong(", or ] expected"));
                }
            }
        }
        Ok(Node::List(list))
    }

    /// Between quotation marks, over several lines too; a backslash takes the next character as it
    /// is.
    fn string(&mut self) -> Result<String, ConfigError> {
        let mut bytes = Vec::new();
        let mut rest = self.rest[1..].iter();
        loop {
            match rest.next() {
                Some(b'"') => break,
                Some(b'\\') => bytes.extend(rest.next()),
                Some(byte) => bytes.push(*byte),
                None => return Err(self.wrong("a text without an end begins here")),
            }
        }
        self.line += bytes.iter().filter(|byte| **byte == b'\n').count();
        self.rest = rest.as_slice();
        Ok(String::from_utf8_lossy(&bytes).chars().map(printable).collect())
    }

    fn count(&mut self, depth: usize) -> Result<(), ConfigError> {
        self.nodes += 1;
        if depth >= MAX_DEPTH {
            return Err(self.wrong("nested deeper than metadata is"));
        }
        if self.nodes > MAX_NODES {
            return Err(self.wrong("more than metadata says"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_NODES, parse};

    #[test]
    fn what_the_language_has_is_read() {
        let text = "# to begin with\nvg { id=\"a\\\"b\\\\\" # that\n\tempty = []\n\
                    of = [ \"x\", 7,\n-8 , [1]]}\nn = 42 \"key\" { }\n\0 } after the end";
        let root = parse(text.as_bytes()).unwrap();
        let group = root.section("vg").unwrap();
        assert_eq!(group.text("id"), Some("a\"b\\"));
        assert_eq!((group.list("empty").unwrap().len(), group.list("of").unwrap().len()), (0, 4));
        assert!(group.has("of", "x") && !group.has("of", "y") && !group.has("id", "x"));
        assert_eq!(
            (root.number("n"), root.number("vg"), group.number("of")),
            (Some(42), None, None)
        );
        assert_eq!(root.sections().map(|(key, _)| key).collect::<Vec<_>>(), ["vg", "key"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let deep = "a {".repeat(20);
        let wide = format!("a = [{}]", "1,".repeat(MAX_NODES));
        let lists = format!("a = {}", "[".repeat(1_000_000));
        let cases = [
            ("a {\n\n", "line 3 of the text: } expected"),
            ("a = 1\n}\n", "line 2 of the text: a } too many"),
            ("a = \"b\nc\nd", "line 1 of the text: a text without an end begins here"),
            ("a = \"b\\", "line 1 of the text: a text without an end begins here"),
            ("a = \"b\nc\" d", "line 2 of the text: = or { expected"),
            ("\na b", "line 2 of the text: = or { expected"),
            ("= 1", "line 1 of the text: a key expected"),
            ("a = 1.5", "line 1 of the text: a value expected"),
            ("a = 99999999999999999999", "line 1 of the text: a value expected"),
            ("a = [1 2]", "line 1 of the text: , or ] expected"),
            (&deep, "line 1 of the text: nested deeper than metadata is"),
            (&lists, "line 1 of the text: nested deeper than metadata is"),
            (&wide, "line 1 of the text: more than metadata says"),
        ];
        for (text, told) in cases {
            assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), told);
        }
    }
}
