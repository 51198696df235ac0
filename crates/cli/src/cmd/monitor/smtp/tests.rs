use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::cmd::monitor::events::Alert;
use crate::cmd::monitor::seen::Seen;

fn test_message(array: &str) -> Message {
    let alert = Alert::test(&Seen { name: array.to_owned(), ..Seen::default() });
    Message { alert, time: "2026-01-02T03:04:05Z".to_owned() }
}

fn at(url: &str, password: Option<&Path>) -> Result<Server, Failure> {
    Server::new(url, password, None, "here", Duration::from_millis(50))
}

/// Returns the reason for refusing a server.
fn reason(url: &str, password: Option<&Path>) -> String {
    format!("{:?}", at(url, password).expect_err("refused"))
}

#[test]
fn servers_are_named_by_addresses_without_passwords() {
    for url in ["smtp://h", "smtp://127.0.0.1:25", "smtps://h:465", "smtp://h:587?tls=required"] {
        assert!(at(url, None).is_ok(), "{url}");
    }
    for url in ["h", "http://h", "smtp://", "smtp://h?tls=optional", "smtp://h?tsl=required"] {
        assert!(reason(url, None).contains("no address of a mail server"), "{url}");
    }
    let shown = reason("smtps://raid:geheim@h", None);
    assert!(shown.contains("all can read a password") && !shown.contains("geheim"), "{shown}");
    assert!(reason("smtps://raid@h", None).contains("no password"));
}

#[test]
fn a_password_is_nobody_elses_and_does_not_travel_in_the_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    std::fs::write(&file, "a@:/% b\n").expect("a file");
    let mode = |mode| std::fs::set_permissions(&file, Permissions::from_mode(mode));
    mode(0o640).expect("a mode");
    assert!(reason("smtps://raid@h", Some(&file)).contains("others can read the password"));
    mode(0o600).expect("a mode");
    assert!(at("smtps://raid@h", Some(&file)).is_ok());
    assert!(reason("smtp://raid@h", Some(&file)).contains("unencrypted"));
    assert!(reason("smtps://h", Some(&file)).contains("names no user"));
    let url = with_password("smtps://raid%40a@h:1", Some(&file)).expect("an address");
    assert_eq!(url, "smtps://raid%40a:%61%40%3A%2F%25%20%62@h:1");
}

#[test]
fn who_gets_mail_by_smtp_has_a_domain() {
    assert!(recipient("root@example.org").is_ok());
    for address in ["root", "root@", "a@b\r\nRCPT TO:<c@d>", "a@b, c@d"] {
        let refused = format!("{:?}", recipient(address).expect_err("refused"));
        assert!(refused.contains("no address of SMTP's"), "{refused}");
    }
}

#[test]
fn a_mail_is_plain_whatever_is_in_it() {
    let server = at("smtp://h", None).expect("a server");
    let to = recipient("root@example.org").expect("an address");
    let long = "sda1[0] ".repeat(1000);
    let mail = server.mail(&to, &test_message("größe"), &long).expect("a mail").formatted();
    let mail = String::from_utf8(mail).expect("text");
    assert!(mail.is_ascii() && mail.lines().all(|line| line.len() < 998), "{mail}");
    for head in [
        "From: \"Braid monitoring\" <root@here>\r\n",
        "To: root@example.org\r\n",
        "Message-ID: <2026-01-02T03_3a04_3a05Z.TestMessage.@here>\r\n",
        "Date: Fri, 02 Jan 2026 03:04:05 +0000\r\n",
        "Auto-Submitted: auto-generated\r\n",
    ] {
        assert!(mail.contains(head), "{head} is not in {mail}");
    }
}

#[test]
fn a_server_that_never_answers_holds_a_mail_up_for_a_while() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    // Connections come about in the kernel's queue, and nobody answers there.
    let server = at(&format!("smtp://{address}"), None).expect("a server");
    let to = recipient("root@example.org").expect("an address");
    let sent = server.send(&to, &test_message("home"), "");
    assert!(sent.is_err(), "{sent:?}");
}
