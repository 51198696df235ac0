//! Where alerts go: a program, mail, a webhook.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use braid_host::control::wire::ControlStatus;
use lettre::message::Mailbox;
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::event::Event;
use super::message::Message;
use super::smtp::{self, Server};
use crate::args::MonitorArgs;
use crate::failure::{Failure, system_error};
use crate::output;

const SENDMAIL: &str = "/usr/sbin/sendmail";
/// A program that takes longer is ended.
const PROGRAM_TAKES: Duration = Duration::from_secs(300);
const WEBHOOK_TAKES: Duration = Duration::from_secs(20);

/// The arrays as of the last look, for messages and requests between two looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest(Arc<Mutex<Vec<ControlStatus>>>);

impl Latest {
    pub(super) fn set(&self, arrays: Vec<ControlStatus>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = arrays;
    }

    /// Makes something of them.
    pub(super) fn with<T>(&self, make: impl FnOnce(&[ControlStatus]) -> T) -> T {
        make(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A receiver of alerts.
#[derive(Debug)]
pub(super) struct Sink {
    name: String,
    host: String,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Program(PathBuf),
    Mail { sendmail: PathBuf, from: String, to: String, latest: Latest },
    Smtp { server: Box<Server>, to: Mailbox, latest: Latest },
    Webhook { url: String, agent: Agent },
}

/// Returns the sinks named in the arguments.
pub(super) fn sinks(args: &MonitorArgs, latest: &Latest) -> Result<Vec<Sink>, Failure> {
    let host = output::host_name();
    let sink = |name: String, way| Sink { name, host: host.clone(), way };
    let mut sinks = Vec::new();
    for program in &args.program {
        check_program(program)?;
        // Not one of the same name in PATH.
        let path = std::path::absolute(program).unwrap_or_else(|_| program.clone());
        sinks.push(sink(program.display().to_string(), Way::Program(path)));
    }
    let server = smtp::server(args, &host)?;
    for to in &args.mail {
        let way = mailer(args, to, server.as_ref(), latest)?;
        sinks.push(sink(format!("--mail {to}"), way));
    }
    let mut agent = None;
    for url in &args.webhook {
        check_url(url)?;
        let agent = agent.get_or_insert_with(agent_for_webhooks).clone();
        sinks.push(sink(url.clone(), Way::Webhook { url: url.clone(), agent }));
    }
    // Who is named twice is told once.
    let mut names = BTreeSet::new();
    sinks.retain(|sink| names.insert(sink.name.clone()));
    Ok(sinks)
}

/// Returns the transport of mail to one recipient.
fn mailer(
    args: &MonitorArgs,
    to: &str,
    server: Option<&Server>,
    latest: &Latest,
) -> Result<Way, Failure> {
    let latest = latest.clone();
    if let Some(server) = server {
        let to = smtp::recipient(to)?;
        return Ok(Way::Smtp { server: Box::new(server.clone()), to, latest });
    }
    let sendmail = PathBuf::from(SENDMAIL);
    check_program(&sendmail)?;
    let from = args.mail_from.clone().unwrap_or_else(|| "root".to_owned());
    Ok(Way::Mail { sendmail, from, to: to.to_owned(), latest })
}

/// Checks that a program exists: a missing one would otherwise show only at the first alert.
fn check_program(program: &Path) -> Result<(), Failure> {
    let Err(error) = std::fs::metadata(program) else { return Ok(()) };
    let next = if program == Path::new(SENDMAIL) {
        "install a mail server, or use --smtp, --program or --webhook"
    } else {
        "name a program by its path"
    };
    Err(Failure::refused("monitor", program.display(), system_error(&error), next))
}

fn check_url(url: &str) -> Result<(), Failure> {
    let uri = url.parse::<Uri>().ok();
    let known = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
    if uri.is_some_and(|uri| known(&uri) && uri.host().is_some()) {
        return Ok(());
    }
    let next = "write --webhook https://HOST/PATH, or http://…";
    Err(Failure::usage("monitor", url, "is no address of a web server", next))
}

/// Trusts those whom the system trusts.
fn agent_for_webhooks() -> Agent {
    let roots = rustls_native_certs::load_native_certs().certs;
    let roots: Vec<_> = roots.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let config = Agent::config_builder().timeout_global(Some(WEBHOOK_TAKES)).tls_config(tls);
    config.user_agent(concat!("braid/", env!("CARGO_PKG_VERSION"))).build().new_agent()
}

impl Sink {
    /// Returns the name of the sink, as typed.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the sink takes events of this kind.
    pub(super) const fn wants(&self, event: Event) -> bool {
        match self.way {
            Way::Mail { .. } | Way::Smtp { .. } => event.is_mailed(),
            Way::Program(_) | Way::Webhook { .. } => true,
        }
    }

    /// Delivers a message.
    ///
    /// # Errors
    /// Returns the reason for the failure, for messages. The message should be sent again.
    pub(super) fn tell(&self, message: &Message) -> Result<(), String> {
        match &self.way {
            Way::Program(program) => self.call(program, message),
            Way::Mail { sendmail, from, to, latest } => {
                let mdstat = latest.with(output::mdstat::mdstat);
                mail(sendmail, &message.mail(from, to, &self.host, &mdstat))
            }
            Way::Smtp { server, to, latest } => {
                let mdstat = latest.with(output::mdstat::mdstat);
                server.send(to, message, &mdstat)
            }
            Way::Webhook { url, agent } => {
                let body = message.json(&self.host).to_string();
                let post = agent.post(url).content_type("application/json").send(&body);
                post.map(drop).map_err(|error| error.to_string())
            }
        }
    }

    /// Runs the program with the message. A program that fails or takes too long causes a warning,
    /// and no second call.
    fn call(&self, program: &Path, message: &Message) -> Result<(), String> {
        let mut command = Command::new(program);
        command.args(message.words()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| system_error(&error))?;
        let line = message.line();
        let ended = match ended_within(child, PROGRAM_TAKES) {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => format!("ended with {status} on {line}"),
            Ok(None) => format!("took longer than {} s on {line}", PROGRAM_TAKES.as_secs()),
            Err(error) => return Err(system_error(&error)),
        };
        output::warning(&format!("monitor {}: {ended}; it is not called again", self.name));
        Ok(())
    }
}

fn mail(sendmail: &Path, text: &str) -> Result<(), String> {
    let send = || -> io::Result<Option<ExitStatus>> {
        let mut command = Command::new(sendmail);
        // A line with a dot alone is no end.
        command.args(["-t", "-i"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn()?;
        let written = child.stdin.take().map_or(Ok(()), |mut to| to.write_all(text.as_bytes()));
        let ended = ended_within(child, PROGRAM_TAKES)?;
        written.map(|()| ended)
    };
    match send().map_err(|error| system_error(&error))? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("{} ended with {status}", sendmail.display())),
        None => Err(format!("{} took too long", sendmail.display())),
    }
}

/// Waits for a program, and ends it when it takes too long.
fn ended_within(mut child: Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::monitor::tests::script;

    #[test]
    fn a_mail_is_sent_or_not() {
        let (_dir, takes) = script("[ \"$*\" = '-t -i' ] && grep -q fine");
        assert_eq!(mail(&takes, "To: root\n\nfine\n"), Ok(()));
        let (_dir, refuses) = script("cat >/dev/null; exit 75");
        let reason = mail(&refuses, "To: root\n").expect_err("not sent");
        assert!(reason.contains("75"), "{reason}");
        assert_eq!(mail(Path::new("/none"), ""), Err("no such file or directory".to_owned()));
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let child = Command::new("sleep").arg("1000").spawn().expect("sleep(1)");
        let ended = ended_within(child, Duration::from_millis(1)).expect("a child");
        assert_eq!(ended, None);
    }
}
