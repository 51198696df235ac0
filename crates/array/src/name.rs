//! Names of arrays: a superblock has room for 32 bytes (`set_name`), the name is told from the host
//! before it by a colon, and it is a file name where the array is served.

use crate::refusal::{Advised, Next};

/// Bytes of `set_name`, which holds `HOST:NAME`, or NAME alone where both are too long.
pub const NAME_BYTES: usize = 32;

/// The reason why a text cannot be the name of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing.
    #[error("an empty name")]
    Empty,
    /// Longer than a superblock has room for.
    #[error("a name of {bytes} bytes, and superblocks hold {NAME_BYTES}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The name would be taken for an option or a hidden file.
    #[error("a name cannot begin with {0:?}")]
    Begins(char),
    /// No file name, not to be told from the host's, or nothing to print.
    #[error("a name cannot contain {0:?}")]
    Contains(char),
}

impl Advised for NameError {
    fn next(&self) -> Next {
        "use up to 32 letters, digits, dots, dashes and underscores, and begin with a letter, a \
         digit or an underscore"
            .into()
    }
}

/// Checks that this can be the name of an array that others have made.
///
/// # Errors
/// The reason why it cannot.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let forbidden = |c: &char| matches!(c, '/' | ':') || c.is_control();
    if let Some(forbidden) = name.chars().find(forbidden) {
        return Err(NameError::Contains(forbidden));
    }
    match name.chars().next() {
        None => Err(NameError::Empty),
        Some(first @ ('.' | '-')) => Err(NameError::Begins(first)),
        _ if name.len() > NAME_BYTES => Err(NameError::TooLong { bytes: name.len() }),
        _ => Ok(()),
    }
}

/// Checks that an array can be given this name: of letters, digits, dots, dashes and underscores,
/// which need no quoting in shells, paths and names of units. From 4.3 on mdadm takes only such
/// names, in ASCII.
///
/// # Errors
/// The reason why it cannot.
pub fn check_new_name(name: &str) -> Result<(), NameError> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    check_name(name)?;
    name.chars().find(|c| !plain(*c)).map_or(Ok(()), |c| Err(NameError::Contains(c)))
}

/// Returns a name as mdadm stores it: with the host in front where both fit.
#[must_use]
pub fn stored_name(host: &str, name: &str) -> String {
    let full = format!("{host}:{name}");
    if full.len() <= NAME_BYTES { full } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_a_superblock_a_file_and_a_command_line() {
        for good in ["a", "my data", "über", &"x".repeat(32), "a-b.c"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
            assert!(stored_name("host", good).len() <= NAME_BYTES);
        }
        let table = [
            ("", NameError::Empty),
            ("-x", NameError::Begins('-')),
            (".hidden", NameError::Begins('.')),
            ("a/b", NameError::Contains('/')),
            ("host:a", NameError::Contains(':')),
            ("a\nb", NameError::Contains('\n')),
        ];
        for (bad, why) in table {
            assert_eq!(check_name(bad), Err(why), "{bad:?}");
        }
        let long = "x".repeat(33);
        let wide = "ü".repeat(17);
        assert_eq!(check_name(&long), Err(NameError::TooLong { bytes: 33 }));
        assert_eq!(check_name(&wide), Err(NameError::TooLong { bytes: 34 }));
    }

    #[test]
    fn a_new_name_needs_no_quotes() {
        for good in ["a", "über", "md0", "a-b.c_d"] {
            assert_eq!(check_new_name(good), Ok(()), "{good}");
        }
        for bad in ["a;b", "a b", "it's", "$x", "a*", "~a", "a|b", "a&b", "a\\b", "a\"b", "a@b"] {
            assert_eq!(check_name(bad), Ok(()), "{bad}: md's array may be called so");
            assert!(matches!(check_new_name(bad), Err(NameError::Contains(_))), "{bad}");
        }
        assert_eq!(check_new_name("host:a"), Err(NameError::Contains(':')));
        assert_eq!(check_new_name("-x"), Err(NameError::Begins('-')));
    }

    #[test]
    fn the_host_is_stored_where_there_is_room() {
        assert_eq!(stored_name("h", "home"), "h:home");
        let name = "x".repeat(30);
        assert_eq!(stored_name("h", &name), format!("h:{name}"));
        assert_eq!(stored_name("ho", &name), name);
    }
}
