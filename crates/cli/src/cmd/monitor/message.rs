//! An alert in the format of each sink. No I/O.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::events::Alert;
use crate::failure::one_line;

/// Name of the sender in mails.
pub(super) const MAILER: &str = "Braid monitoring";
/// Lines of mails are no longer than 998 bytes.
const MOST_OF_AN_ID: usize = 800;

/// An alert, and when it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) alert: Alert,
    /// RFC 3339, of universal time.
    pub(super) time: String,
}

impl Message {
    /// `Fail home /dev/sdb`: the arguments of a program.
    pub(super) fn words(&self) -> Vec<String> {
        let Alert { event, array, member, .. } = &self.alert;
        let words = [event.name().into_owned(), array.clone()];
        words.into_iter().chain(member.clone()).collect()
    }

    /// Returns the message as a line.
    pub(super) fn line(&self) -> String {
        one_line(&self.words().join(" "))
    }

    /// Returns the body of a webhook request.
    pub(super) fn json(&self, host: &str) -> Value {
        let Alert { event, array, uuid, member, disk, role, lacks, warning, .. } = &self.alert;
        let Alert { sectors, change, may_fail, id, next, state, .. } = &self.alert;
        json!({
            "event": event.name(),
            "array": array,
            "uuid": uuid,
            "member": member,
            "role": role,
            "lacks": lacks,
            "disk": disk,
            "warning": warning,
            "sectors": sectors,
            "change": change,
            "may_fail": may_fail,
            "id": id,
            "next": next,
            "host": host,
            "time": self.time,
            "state": state,
        })
    }

    /// A mail's subject, as mdadm words it, and the state.
    pub(super) fn subject(&self, host: &str) -> String {
        let Alert { event, array, state, .. } = &self.alert;
        let subject = format!("{} event on {}:{host}", event.name(), one_line(array));
        if state.is_empty() { subject } else { format!("{subject}: {}", state.join(", ")) }
    }

    /// A mail's text, as mdadm words it.
    pub(super) fn text(&self, mdstat: &str) -> String {
        let Alert { event, array, member, disk, role, lacks, warning, .. } = &self.alert;
        let Alert { sectors, change, may_fail, id, next, state, .. } = &self.alert;
        let component = member.as_ref().map(|member| {
            let role = role.map_or_else(String::new, |role| format!(", in role {role}"));
            format!("It could be related to component device {}{role}.", one_line(member))
        });
        let disk = disk.as_ref().map(|disk| one_line(disk));
        let disk = disk.map(|label| format!("That is the disk with this label: {label}."));
        let warning = warning.as_ref().map(|warning| one_line(warning));
        let warning = warning.map(|warning| format!("What it says: {warning}."));
        let sectors = sectors.map(|sectors| format!("Sectors that did not fit: {sectors}."));
        let change = change.as_ref().map(|words| format!("The array: {}.", one_line(words)));
        let may_fail = may_fail.as_ref().map(|words| format!("; {}", one_line(words)));
        let state = (!state.is_empty()).then(|| {
            format!("The array is now {}{}.", state.join(", "), may_fail.unwrap_or_default())
        });
        let lacks = (!lacks.is_empty()).then(|| {
            let roles: Vec<String> = lacks.iter().map(u16::to_string).collect();
            format!("Without a member in sync: role {}.", roles.join(", role "))
        });
        let next = next.as_ref().map(|next| format!("Next: {}", one_line(next)));
        let see = id.as_ref().map(|id| format!("See: braid help {id}"));
        let told = [component, disk, warning, sectors, change, state, lacks, next, see];
        let told = told.into_iter().flatten();
        let told: String = told.map(|line| format!("{line}\n\n")).collect();
        format!(
            "This is an automatically generated mail message.\n\n\
             A {} event had been detected on array {} at {}.\n\n\
             {told}\
             Faithfully yours, etc.\n\n\
             The arrays of this machine, as /proc/mdstat would show them:\n\n{mdstat}",
            event.name(),
            one_line(array),
            self.time,
        )
    }

    /// A mail with its head, for sendmail.
    pub(super) fn mail(&self, from: &str, to: &str, host: &str, mdstat: &str) -> String {
        format!(
            "From: {MAILER} <{}>\n\
             To: {}\n\
             Subject: {}\n\
             Auto-Submitted: auto-generated\n\
             Content-Type: text/plain; charset=utf-8\n\n{}",
            one_line(from),
            one_line(to),
            self.subject(host),
            self.text(mdstat),
        )
    }

    /// Returns the Message-ID: repeated sends of the same alert have the same one, so mail readers
    /// show duplicates once.
    pub(super) fn mail_id(&self, host: &str) -> String {
        let Alert { event, uuid, member, warning, .. } = &self.alert;
        let event = event.name();
        let words = [self.time.as_str(), event.as_ref(), uuid.as_str()].into_iter();
        let more = [member, warning].into_iter().flatten().map(String::as_str);
        let words: Vec<_> = words.chain(more).map(atom).collect();
        let words = words.join(".");
        let id = words.get(..MOST_OF_AN_ID).unwrap_or(&words);
        let host: Vec<_> = host.split('.').map(atom).collect();
        format!("<{id}@{}>", host.join("."))
    }
}

/// Encodes a text for use in a Message-ID.
fn atom(text: &str) -> String {
    let mut atom = String::new();
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' => atom.push(byte.into()),
            _ => atom.push_str(&format!("_{byte:02x}")),
        }
    }
    atom
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::monitor::event::Event;

    fn message(member: Option<&str>) -> Message {
        let alert = Alert {
            event: Event::Fail,
            array: "home".to_owned(),
            uuid: "a:b:c:d".to_owned(),
            member: member.map(str::to_owned),
            disk: member.map(|_| "WDC, serial 7".to_owned()),
            role: member.map(|_| 2),
            lacks: vec![2],
            warning: member.map(|_| "8 sectors wait".to_owned()),
            sectors: None,
            change: Some("raid5 of 3 members, 40 MiB before, and more".to_owned()),
            may_fail: Some("no further member may fail".to_owned()),
            next: Some("braid add home NEW-DEVICE".to_owned()),
            id: Some("BRAID-104".to_owned()),
            state: vec!["clean".to_owned(), "degraded".to_owned()],
        };
        Message { alert, time: "2026-01-02T03:04:05Z".to_owned() }
    }

    #[test]
    fn programs_have_mdadms_arguments() {
        assert_eq!(message(Some("/dev/a b")).words(), ["Fail", "home", "/dev/a b"]);
        assert_eq!(message(None).words(), ["Fail", "home"]);
    }

    #[test]
    fn a_mail_has_mdadms_subject_and_no_head_from_elsewhere() {
        let mail =
            message(Some("/dev/a\n\nb")).mail("a@b", "root\nBcc: all", "here", "Personalities\n");
        let (head, body) = mail.split_once("\n\n").expect("a head");
        assert!(head.starts_with("From: Braid monitoring <a@b>\n"), "{head}");
        assert!(head.contains("\nTo: root\\nBcc: all\n"), "{head}");
        assert!(head.contains("\nSubject: Fail event on home:here: clean, degraded\n"), "{head}");
        assert!(body.contains("component device /dev/a\\n\\nb, in role 2."), "{body}");
        assert!(body.contains("this label: WDC, serial 7."), "{body}");
        assert!(body.contains("\n\nWhat it says: 8 sectors wait.\n\n"), "{body}");
        assert!(body.contains("\n\nThe array: raid5 of 3 members, 40 MiB before, "), "{body}");
        let now = "The array is now clean, degraded; no further member may fail.\n\n\
                   Without a member in sync: role 2.\n\n\
                   Next: braid add home NEW-DEVICE\n\n\
                   See: braid help BRAID-104\n\n";
        assert!(body.contains(now), "{body}");
        assert!(body.ends_with("\n\nPersonalities\n"), "{body}");
    }

    #[test]
    fn a_mail_has_one_name_and_no_other_mail_has_that() {
        let here = |member| message(member).mail_id("a.b c");
        let id = "<2026-01-02T03_3a04_3a05Z.Fail.a_3ab_3ac_3ad@a.b_20c>";
        assert_eq!(here(None), id);
        assert_ne!(here(Some("/dev/a/b")), here(Some("/dev/a b")));
        assert!(here(Some(&"/".repeat(1000))).len() < 998);
    }

    #[test]
    fn a_webhook_has_all_fields() {
        let json = message(None).json("here");
        let expected = json!({
            "event": "Fail", "array": "home", "uuid": "a:b:c:d", "member": null, "disk": null,
            "role": null, "lacks": [2], "warning": null, "sectors": null, "host": "here",
            "change": "raid5 of 3 members, 40 MiB before, and more",
            "may_fail": "no further member may fail", "id": "BRAID-104",
            "next": "braid add home NEW-DEVICE",
            "time": "2026-01-02T03:04:05Z", "state": ["clean", "degraded"],
        });
        assert_eq!(json, expected);
    }
}
