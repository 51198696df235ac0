//! Mail by SMTP, to servers of the tests' own.

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::monitor::{Monitor, mirror};
use crate::support::{Lab, skip, until};
use crate::tls::certificates;

/// Answers of a server to the mails it gets, in order; the last one is repeated.
#[derive(Clone, Copy, Debug)]
enum Says {
    Accepted,
    /// The recipient is not.
    Refused,
    /// The connection ends after the mail, before the server says whether that was taken.
    Nothing,
}

/// Serves from now on: all that is said to each connection.
fn serve(listener: TcpListener, tls: Option<Arc<ServerConfig>>, says: &[Says]) -> Receiver<String> {
    let (to, heard) = channel();
    let says = says.to_vec();
    std::thread::spawn(move || {
        let last = *says.last().expect("one");
        let says = says.into_iter().chain(std::iter::repeat(last));
        for (stream, says) in listener.incoming().zip(says) {
            let stream = stream.expect("a connection");
            let said = match tls.clone() {
                None => session(stream, says),
                Some(tls) => {
                    let tls = ServerConnection::new(tls).expect("a certificate");
                    session(StreamOwned::new(tls, stream), says)
                }
            };
            if to.send(said).is_err() {
                return;
            }
        }
    });
    heard
}

/// Serves one connection, from the greeting to its end. Returns the lines of the client.
fn session(stream: impl Read + Write, says: Says) -> String {
    let mut stream = BufReader::new(stream);
    let mut said = String::new();
    let mut answer = "220 test";
    let mut in_mail = false;
    loop {
        // A client that goes away is heard as one that says nothing more.
        let told = if answer.is_empty() { Ok(()) } else { tell(stream.get_mut(), answer) };
        let start = said.len();
        if told.is_err() || stream.read_line(&mut said).unwrap_or(0) == 0 {
            return said;
        }
        let line = said[start..].trim_end();
        answer = match (in_mail, line.split(' ').next().unwrap_or_default()) {
            (true, ".") if matches!(says, Says::Nothing) => return said,
            (true, ".") => "250 taken",
            (true, _) => "",
            (false, "EHLO") => "250-test\r\n250 AUTH PLAIN",
            (false, "AUTH") => "235 welcome",
            (false, "RCPT") if matches!(says, Says::Refused) => "550 nobody of that name",
            (false, "MAIL" | "RCPT") => "250 fine",
            (false, "DATA") => "354 go on",
            (false, "QUIT") => "221 bye",
            (false, _) => "500 what?",
        };
        in_mail = line == "DATA" || in_mail && line != ".";
    }
}

fn tell(to: &mut impl Write, answer: &str) -> io::Result<()> {
    to.write_all(format!("{answer}\r\n").as_bytes())?;
    to.flush()
}

fn next(heard: &Receiver<String>) -> String {
    heard.recv_timeout(Duration::from_secs(60)).expect("a connection")
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, format!("smtp://{address}"))
}

/// The lines of a head or an envelope that begin so.
fn lines<'a>(said: &'a str, start: &str) -> Vec<&'a str> {
    said.lines().filter(|line| line.starts_with(start)).collect()
}

#[test]
fn a_mail_goes_to_the_server_once_and_over_a_restart() {
    let lab = Lab::new();
    mirror(&lab);
    let (listener, url) = listen();
    let words = ["--mail", "ops@example.org", "--mail-from", "raid@example.org", "--smtp", &url];
    let heard = serve(listener, None, &[Says::Refused, Says::Nothing, Says::Accepted]);
    let monitor = Monitor::start(&lab, &[&words[..], &["--test"]].concat());
    assert_eq!(monitor.says(), "TestMessage home");
    let refused = next(&heard);
    assert_eq!(lines(&refused, "MAIL FROM"), ["MAIL FROM:<raid@example.org>"]);
    assert_eq!(lines(&refused, "RCPT TO"), ["RCPT TO:<ops@example.org>"]);
    assert!(lines(&refused, "DATA").is_empty(), "{refused}");
    // Whether the second one was taken is not known; by its name, two are known to be one.
    let names: Vec<String> = (0..2)
        .map(|_| lines(&next(&heard), "Message-ID: ").first().expect("a mail").to_string())
        .collect();
    assert_eq!(names[0], names[1]);
    monitor.stop();
    let monitor = Monitor::start(&lab, &words);
    lab.ok("stop home", &[]);
    assert_eq!(monitor.says(), "DeviceDisappeared home");
    let told = next(&heard);
    let subject = format!("Subject: DeviceDisappeared event on home:{}", host());
    assert_eq!(lines(&told, "Subject: "), [subject]);
    assert!(told.contains("\r\nPersonalities : "), "{told}");
    monitor.stop();
    assert!(heard.try_recv().is_err());
}

/// The text of a mail names the array, the member, the state and each step to a whole array.
#[test]
fn a_mail_alone_tells_what_to_do() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok("create home -l 5 -n 3 --assume-clean", &members);
    lab.ok("assemble home", &members);
    let (listener, url) = listen();
    let words = ["--mail", "ops@example.org", "--smtp", &url];
    let heard = serve(listener, None, &[Says::Accepted]);
    // The array is known once the file of the monitor has it.
    let monitor = Monitor::start(&lab, &words);
    let known = || std::fs::read_to_string(lab.path("run/monitor.json")).unwrap_or_default();
    until("the monitor knows the array", || known().contains("\"home\""));
    lab.ok("fail home", &members[1..2]);
    assert_eq!(monitor.says(), format!("Fail home {}", members[1].display()));
    let mail = next(&heard).replace("=\r\n", "").replace("\r\n", "\n");
    let failed = members[1].display();
    for line in [
        format!("Subject: Fail event on home:{}: clean, degraded", host()),
        format!("It could be related to component device {failed}, in role 1."),
        "The array is now clean, degraded; no further member may fail.".to_owned(),
        "Without a member in sync: role 1.".to_owned(),
        format!("Next: braid remove home {failed}; braid add home NEW-DEVICE"),
        "See: braid help BRAID-104".to_owned(),
    ] {
        assert!(mail.lines().any(|said| said == line), "{line}\n{mail}");
    }
    // What it says is done, word by word.
    let new = lab.members("new", 1, 16);
    let steps = lines(&mail, "Next: ")[0].trim_start_matches("Next: ");
    for step in steps.replace("NEW-DEVICE", &new[0].display().to_string()).split("; ") {
        lab.ok(step.strip_prefix("braid ").expect("a command"), &[]);
    }
    lab.ok("status home --watch", &[]);
    lab.ok("detail home --test", &[]);
    let see = lines(&mail, "See: ")[0].trim_start_matches("See: braid ");
    assert!(lab.ok_text(see, &[]).contains("braid remove NAME DEVICE"));
    monitor.stop();
}

#[test]
fn a_server_that_was_away_gets_what_was_to_be_told() {
    let lab = Lab::new();
    mirror(&lab);
    let (listener, url) = listen();
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let words = ["--mail", "ops@example.org", "--smtp", &url];
    let monitor = Monitor::start(&lab, &[&words[..], &["--test"]].concat());
    assert_eq!(monitor.says(), "TestMessage home");
    let waits = || std::fs::read_to_string(lab.path("run/monitor.json")).unwrap_or_default();
    until("it waits", || waits().contains("\"--mail ops@example.org\":[{"));
    monitor.stop();
    let once = lab.run(&format!("monitor --oneshot --test {}", words.join(" ")), &[]);
    assert_eq!(once.status.code(), Some(1), "{once:?}");
    let line = String::from_utf8_lossy(&once.stderr);
    assert!(line.contains("TestMessage home was not told"), "{line}");
    let monitor = Monitor::start(&lab, &words);
    let heard = serve(TcpListener::bind(address).expect("the port"), None, &[Says::Accepted]);
    assert_eq!(lines(&next(&heard), "RCPT TO"), ["RCPT TO:<ops@example.org>"]);
    until("nothing waits", || waits().contains("\"pending\":{}"));
    monitor.stop();
    assert!(heard.try_recv().is_err());
}

#[test]
fn a_password_is_told_to_whom_a_certificate_knows() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skip("a_password_is_told_to_whom_a_certificate_knows", "openssl is not there");
    }
    let lab = Lab::new();
    mirror(&lab);
    let certificates = certificates(&lab, "ca");
    let password = lab.path("password");
    std::fs::write(&password, "secret\n").expect("a file");
    std::fs::set_permissions(&password, Permissions::from_mode(0o600)).expect("a mode");
    let (listener, url) = listen();
    let url = url.replace("smtp://", "smtps://raid@");
    let heard = serve(listener, Some(tls(&certificates)), &[Says::Accepted]);
    let send = |trusted: &Path| {
        let mut command = lab.braid();
        command.env("SSL_CERT_FILE", trusted).args(["monitor", "--oneshot", "--test", "--smtp"]);
        command.arg(&url).arg("--smtp-password").arg(&password).args(["--mail", "ops@example.org"]);
        command.output().expect("braid runs")
    };
    // Another's certificate: it is told nothing.
    let stranger = send(&certificates.join("client-cert.pem"));
    assert_eq!(stranger.status.code(), Some(1), "{stranger:?}");
    assert_eq!(next(&heard), "");
    let sent = send(&certificates.join("ca-cert.pem"));
    assert!(sent.status.success(), "{sent:?}");
    // "\0raid\0secret".
    assert_eq!(lines(&next(&heard), "AUTH"), ["AUTH PLAIN AHJhaWQAc2VjcmV0"]);
}

fn tls(certificates: &Path) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(certificates.join("server-cert.pem"));
    let chain = chain.and_then(Iterator::collect::<Result<Vec<_>, _>>).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(certificates.join("server-key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("protocols").with_no_client_auth();
    Arc::new(config.with_single_cert(chain, key).expect("a pair"))
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
