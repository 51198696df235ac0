//! Access to a socket or a file that an export makes.

use std::fmt;

/// Read and write for its owner.
const OWNER_ALONE: u32 = 0o600;
/// And for its group.
const WITH_GROUP: u32 = 0o660;
/// All that a mode may have: these are no programs, and belong to one user.
const MOST: u32 = 0o777;

/// A user or group, as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: String,
    id: u32,
}

/// The mode, owner and group that a socket or file is to have. Unset values are as for any file of
/// the process, and only its user has access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    mode: Option<u32>,
    owner: Option<Named>,
    group: Option<Named>,
}

/// Reason for which an option makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmeant {
    pub(crate) reason: String,
    pub(crate) next: &'static str,
}

impl Access {
    /// Takes an option in. False when it is none of these.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, Unmeant> {
        let twice = || Unmeant { reason: format!("{key}= is there twice"), next: "leave one out" };
        match key {
            "mode" => self.mode.replace(mode(value)?).map_or(Ok(true), |_| Err(twice())),
            "owner" => {
                let next = "name a user of this machine, or a number: getent passwd lists them";
                let known = |name: &str| Some(uzers::get_user_by_name(name)?.uid());
                let owner = named("owner", "user", value, next, known)?;
                self.owner.replace(owner).map_or(Ok(true), |_| Err(twice()))
            }
            "group" => {
                let next = "name a group of this machine, or a number: getent group lists them";
                let known = |name: &str| Some(uzers::get_group_by_name(name)?.gid());
                let group = named("group", "group", value, next, known)?;
                self.group.replace(group).map_or(Ok(true), |_| Err(twice()))
            }
            _ => Ok(false),
        }
    }

    /// Returns the mode. With a group and no mode, the group has access.
    pub(crate) fn mode(&self) -> u32 {
        let usual = if self.group.is_some() { WITH_GROUP } else { OWNER_ALONE };
        self.mode.unwrap_or(usual)
    }

    /// The owner, where it is said.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.owner.as_ref().map(|owner| owner.id)
    }

    /// The group, where it is said.
    pub(crate) fn group(&self) -> Option<u32> {
        self.group.as_ref().map(|group| group.id)
    }

    /// Returns whether it is set otherwise than for the user of this process alone.
    pub(crate) fn is_for_others(&self) -> bool {
        *self != Self::default()
    }
}

/// As options, each after a comma.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mode) = self.mode {
            write!(f, ",mode={mode:04o}")?;
        }
        if let Some(owner) = &self.owner {
            write!(f, ",owner={}", owner.name)?;
        }
        if let Some(group) = &self.group {
            write!(f, ",group={}", group.name)?;
        }
        Ok(())
    }
}

/// Splits the text of an export at the first single comma into the part before it, in which two
/// commas stand for one, and the options after it.
pub(crate) fn split(text: &str) -> (String, Vec<&str>) {
    let mut place = String::new();
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once(',') else {
            place.push_str(rest);
            return (place, Vec::new());
        };
        place.push_str(before);
        let Some(after) = after.strip_prefix(',') else {
            return (place, after.split(',').collect());
        };
        place.push(',');
        rest = after;
    }
}

fn mode(value: &str) -> Result<u32, Unmeant> {
    // `from_str_radix` would take a sign.
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(value, 8).ok().filter(|mode| digits && *mode <= MOST);
    mode.ok_or_else(|| Unmeant {
        reason: format!("mode={value} is no mode"),
        next: "give it in octal digits, 0777 at most: mode=0660",
    })
}

fn named(
    key: &str,
    what: &str,
    value: &str,
    next: &'static str,
    known: impl Fn(&str) -> Option<u32>,
) -> Result<Named, Unmeant> {
    // A name may be made of digits. The largest number stands for "as it is".
    let number = || value.parse().ok().filter(|number| *number != u32::MAX);
    let id = known(value).or_else(number).ok_or_else(|| Unmeant {
        reason: format!("{key}={value}: there is no such {what}"),
        next,
    })?;
    Ok(Named { name: value.to_owned(), id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_a_group_lets_it_in() {
        let access = |options: &[(&str, &str)]| {
            let mut access = Access::default();
            for (key, value) in options {
                assert_eq!(access.set(key, value), Ok(true), "{key}");
            }
            access
        };
        assert_eq!(access(&[]).mode(), 0o600);
        assert_eq!(access(&[("owner", "root")]).mode(), 0o600);
        let group = access(&[("group", "4711")]);
        assert_eq!((group.mode(), group.owner(), group.group()), (0o660, None, Some(4711)));
        let all = access(&[("group", "root"), ("mode", "0640"), ("owner", "12")]);
        assert_eq!((all.mode(), all.owner(), all.group()), (0o640, Some(12), Some(0)));
        assert_eq!(all.to_string(), ",mode=0640,owner=12,group=root");
        assert!(all.is_for_others() && !access(&[]).is_for_others());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let reason = |key: &str, value: &str| Access::default().set(key, value).unwrap_err().reason;
        for value in ["", "8", "1777", "+660", "rw", "99999999999"] {
            assert_eq!(reason("mode", value), format!("mode={value} is no mode"));
        }
        for value in ["", "-1", "4294967295", "no such user"] {
            assert_eq!(reason("owner", value), format!("owner={value}: there is no such user"));
            assert_eq!(reason("group", value), format!("group={value}: there is no such group"));
        }
        let mut access = Access::default();
        assert_eq!(access.set("mode", "600"), Ok(true));
        assert_eq!(access.set("mode", "660").unwrap_err().reason, "mode= is there twice");
        assert_eq!(access.set("size", "1"), Ok(false));
    }
}
