//! Names in mdadm's lines for programs. A name may hold blanks and quotes, and a foreign name any
//! character.

/// The path in an `ARRAY` line.
pub(crate) fn conf_path(name: &str) -> String {
    in_conf(&format!("/dev/md/{}", in_dev_md(name)))
}

/// Returns the name as the last part of a path in `/dev/md`.
fn in_dev_md(name: &str) -> String {
    let fit = |c: char| match c {
        '/' => '-',
        c if c == ' ' || c.is_control() => '_',
        c => c,
    };
    name.chars().map(fit).collect()
}

/// Returns the name as a word of `/proc/mdstat`, which is split at blanks and brackets.
pub(crate) fn in_mdstat(name: &str) -> String {
    let fit = |c: char| c.is_whitespace() || c.is_control() || "[]()".contains(c);
    name.chars().map(|c| if fit(c) { '_' } else { c }).collect()
}

/// Returns the name as a word of mdadm.conf, quoted where necessary. Quotes are not escaped: before
/// a quote of the same kind the quotation is closed, and one of the other kind opened.
fn in_conf(name: &str) -> String {
    let Some(first) = name.chars().find(|c| matches!(c, '"' | '\'')) else {
        return if name.contains([' ', '\t']) { format!("\"{name}\"") } else { name.to_owned() };
    };
    let other = |quote| if quote == '"' { '\'' } else { '"' };
    let mut quote = other(first);
    let mut text = String::from(quote);
    for c in name.chars() {
        if c == quote {
            text.push(quote);
            quote = other(quote);
            text.push(quote);
        }
        text.push(c);
    }
    text.push(quote);
    text
}

/// ` name=NAME` of an `ARRAY` line; nothing where the line could not hold it. The UUID is enough.
pub(crate) fn conf_field(name: &str) -> String {
    let fits = !name.is_empty() && !name.contains(['\n', '\r']);
    if fits { format!(" name={}", in_conf(name)) } else { String::new() }
}

/// Returns the name as the value of a `KEY=value` line.
pub(crate) fn in_export(name: &str) -> &str {
    name.split('\n').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as mdadm 4.2 prints them, plus quotes around the path: mdadm cannot read the line
    /// without them.
    #[test]
    fn names_are_written_as_mdadm_does() {
        let names = [
            ("plain", "/dev/md/plain", "plain"),
            ("it's one", "\"/dev/md/it's_one\"", "\"it's one\""),
            ("a \"b\" c", "'/dev/md/a_\"b\"_c'", "'a \"b\" c'"),
            ("tab\tx", "/dev/md/tab_x", "\"tab\tx\""),
            ("q'q", "\"/dev/md/q'q\"", "\"q'q\""),
            ("mixed 'a\" b", "\"/dev/md/mixed_'a\"'\"_b'", "\"mixed 'a\"'\" b'"),
            ("a/b c", "/dev/md/a-b_c", "\"a/b c\""),
            ("back\\slash", "/dev/md/back\\slash", "back\\slash"),
            ("x#y", "/dev/md/x#y", "x#y"),
        ];
        for (name, path, word) in names {
            assert_eq!((conf_path(name).as_str(), in_conf(name).as_str()), (path, word));
        }
        assert_eq!(conf_path("a\nARRAY"), "/dev/md/a_ARRAY");
        assert_eq!(in_mdstat("my [old] (F) disk"), "my__old___F__disk");
        assert_eq!(conf_field("a\nARRAY /dev/md/b"), "");
        assert_eq!(in_export("a\nMD_LEVEL=raid0"), "a");
    }
}
