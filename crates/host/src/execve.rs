//! Starting a program in the place of this one. The C library's `execvp`, which the standard
//! library uses, gives a file that is no program to a shell, which would carry out what lies there.

use std::ffi::{CString, OsString, c_char};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Starts a program with these words, the first of which is its name, and this environment. Returns
/// only when that failed.
pub(crate) fn execve(
    program: &Path,
    words: impl Iterator<Item = OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> io::Error {
    match prepared(program, words, variables) {
        Ok(prepared) => prepared.execute(),
        Err(error) => error,
    }
}

struct Prepared {
    program: CString,
    words: Vec<CString>,
    variables: Vec<CString>,
}

fn prepared(
    program: &Path,
    words: impl Iterator<Item = OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> io::Result<Prepared> {
    let pair = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        Ok(CString::new(name.into_vec())?)
    };
    Ok(Prepared {
        program: CString::new(program.as_os_str().as_bytes())?,
        words: words.map(|word| Ok(CString::new(word.into_vec())?)).collect::<io::Result<_>>()?,
        variables: variables.map(pair).collect::<io::Result<_>>()?,
    })
}

impl Prepared {
    fn execute(&self) -> io::Error {
        let ended = |all: &[CString]| -> Vec<*const c_char> {
            all.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let words = ended(&self.words);
        let variables = ended(&self.variables);
        // SAFETY: all three are texts, or lists of texts, that end as C has them, and outlive the
        // call.
        unsafe { libc::execve(self.program.as_ptr(), words.as_ptr(), variables.as_ptr()) };
        io::Error::last_os_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_not_given_to_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("garbage");
        std::fs::write(&path, "exit 0\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode).unwrap();
        let error = execve(&path, [OsString::from("braid")].into_iter(), std::iter::empty());
        assert_eq!(error.raw_os_error(), Some(libc::ENOEXEC));
    }
}
