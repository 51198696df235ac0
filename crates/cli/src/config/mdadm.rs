//! ARRAY lines of mdadm.conf: names of arrays, and arrays to be ignored. Lines without a UUID are
//! not read.

use super::array::parse_uuid;

/// Where Debian and others have it.
const FILES: [&str; 2] = ["/etc/mdadm/mdadm.conf", "/etc/mdadm.conf"];

/// The ARRAY lines.
#[derive(Debug, Default)]
pub(crate) struct MdadmConf {
    arrays: Vec<(String, Place)>,
}

/// Device of an ARRAY line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `/dev/md/NAME`, or NAME alone.
    Name(String),
    /// `<ignore>`.
    Ignored,
}

impl MdadmConf {
    /// Reads the machine's file; empty if there is none.
    pub(crate) fn read() -> Self {
        let mut texts = FILES.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        texts.next().map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let mut lines: Vec<Vec<&str>> = Vec::new();
        for line in text.lines() {
            let goes_on = line.starts_with([' ', '\t']);
            let line = line.split('#').next().unwrap_or_default();
            match lines.last_mut() {
                Some(last) if goes_on => last.extend(line.split_whitespace()),
                _ => lines.push(line.split_whitespace().collect()),
            }
        }
        Self { arrays: lines.iter().filter_map(|words| array(words)).collect() }
    }

    /// Returns the entry of an array.
    pub(crate) fn of(&self, uuid: &str) -> Option<&Place> {
        self.arrays.iter().find(|(of, _)| of == uuid).map(|(_, place)| place)
    }

    /// The array of this name.
    pub(crate) fn called(&self, name: &str) -> Option<&str> {
        let is = |place: &Place| matches!(place, Place::Name(known) if known == name);
        self.arrays.iter().find(|(_, place)| is(place)).map(|(uuid, _)| uuid.as_str())
    }
}

/// A line that names an array and its UUID.
fn array(words: &[&str]) -> Option<(String, Place)> {
    let (keyword, rest) = words.split_first()?;
    if !keyword.eq_ignore_ascii_case("array") {
        return None;
    }
    let (pairs, places): (Vec<&str>, Vec<&str>) = rest.iter().partition(|word| word.contains('='));
    let value = |key: &str| {
        let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        pairs.filter(|(known, _)| known.eq_ignore_ascii_case(key)).map(|(_, value)| value).next()
    };
    let uuid = parse_uuid(value("uuid")?).ok()?;
    let place = match *places.first()? {
        "<ignore>" => Place::Ignored,
        place => {
            let name = place.strip_prefix("/dev/md/").unwrap_or(place);
            let numbered = name.starts_with("/dev/md") || name.parse::<u32>().is_ok();
            let stored = value("name").map(|name| name.rsplit(':').next().unwrap_or(name));
            Place::Name(if numbered { stored? } else { name }.to_owned())
        }
    };
    Some((uuid, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_lines_give_names_by_uuid() {
        let conf = MdadmConf::parse(
            "MAILADDR root\n# ARRAY /dev/md/no UUID=00000000:00000000:00000000:00000009\n\
             ARRAY /dev/md/home level=raid1\n  \
             UUID=00000000:00000000:00000000:00000001\n\
             array <ignore> uuid=00000000:00000000:00000000:00000002\n\
             ARRAY /dev/md127 UUID=00000000:00000000:00000000:00000003 name=box:data\n\
             ARRAY /dev/md0 UUID=00000000:00000000:00000000:00000004\n",
        );
        let of = |last: u8| conf.of(&format!("{last:032x}")).cloned();
        assert_eq!(of(1), Some(Place::Name("home".into())));
        assert_eq!(of(2), Some(Place::Ignored));
        assert_eq!(of(3), Some(Place::Name("data".into())));
        assert_eq!((of(4), of(9)), (None, None));
        assert_eq!(conf.called("data"), Some("00000000000000000000000000000003"));
    }
}
