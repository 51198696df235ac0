//! Claims on the bytes of an arena. Bytes being read must not be written, and bytes being written
//! must be left alone. A machine that reuses a buffer too early is detected here, regardless of the
//! bytes.

use braid_array::Buf;

/// Use of the bytes while a claim on them stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Write what others may write there, too, as it is the same.
    Fill,
}

/// Names a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimId(u64);

#[derive(Clone, Copy, Debug)]
struct Claim {
    id: ClaimId,
    buf: Buf,
    access: Use,
    what: &'static str,
}

/// The claims on one arena.
#[derive(Debug, Default)]
pub struct Claims {
    standing: Vec<Claim>,
    last: u64,
}

impl Claims {
    /// Claims a buffer for `what`. Returns the conflict with another claim, if any; the buffer is
    /// claimed all the same.
    pub fn take(&mut self, buf: Buf, access: Use, what: &'static str) -> (ClaimId, Option<String>) {
        let conflict = self.conflict(buf, access, what);
        self.last += 1;
        let id = ClaimId(self.last);
        self.standing.push(Claim { id, buf, access, what });
        (id, conflict)
    }

    /// Gives a claim back.
    pub fn release(&mut self, id: ClaimId) {
        if let Some(at) = self.standing.iter().position(|claim| claim.id == id) {
            self.standing.swap_remove(at);
        }
    }

    /// Returns the uses of the claimed bytes.
    pub fn uses(&self) -> impl Iterator<Item = &'static str> {
        self.standing.iter().map(|claim| claim.what)
    }

    /// Returns the conflict of this use of a buffer with a standing claim.
    pub fn conflict(&self, buf: Buf, access: Use, what: &str) -> Option<String> {
        let collides = |claim: &&Claim| {
            let shares = access == claim.access && access != Use::Write;
            !shares && overlap(claim.buf, buf)
        };
        let other = self.standing.iter().find(collides)?;
        Some(format!(
            "{what} of {} while {} of {} is not done",
            place(buf),
            other.what,
            place(other.buf)
        ))
    }
}

fn place(buf: Buf) -> String {
    format!("{}+{}", buf.offset, buf.len)
}

/// Returns whether two buffers have bytes in common.
pub fn overlap(a: Buf, b: Buf) -> bool {
    a.offset < b.offset + u64::from(b.len) && b.offset < a.offset + u64::from(a.len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let mut claims = Claims::default();
        let at = |offset| Buf { offset, len: 512 };
        let (read, none) = claims.take(at(0), Use::Read, "a put");
        assert_eq!(none, None);
        assert_eq!(claims.take(at(256), Use::Read, "a write").1, None);
        assert!(claims.conflict(at(511), Use::Write, "a sum").is_some());
        claims.release(read);
        assert_eq!(claims.conflict(Buf { offset: 0, len: 256 }, Use::Write, "a sum"), None);
        assert!(claims.take(at(512), Use::Write, "a sum").1.is_some());
        assert!(claims.conflict(at(1000), Use::Read, "a put").is_some());
        assert_eq!(claims.take(at(2048), Use::Fill, "a read").1, None);
        assert_eq!(claims.conflict(at(2048), Use::Fill, "a read"), None);
        assert!(claims.conflict(at(2048), Use::Read, "a sum").is_some());
        assert!(claims.conflict(at(2048), Use::Write, "a sum").is_some());
    }
}
