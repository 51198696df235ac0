//! Mail by SMTP, for machines without a mail server of their own.

use std::path::Path;
use std::time::Duration;

use chrono::DateTime;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message as Mail};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, SmtpTransport, Transport};
use ureq::http::Uri;

use super::message::{MAILER, Message};
use super::secret;
use crate::args::MonitorArgs;
use crate::failure::{Failure, one_line};

/// Timeout of a server's answer; some servers examine mail before they accept it.
const ANSWER_TAKES: Duration = Duration::from_secs(120);
const STARTTLS: &str = "tls=required";

/// A mail server, with the sender of the mails.
#[derive(Clone, Debug)]
pub(super) struct Server {
    transport: SmtpTransport,
    from: Mailbox,
    host: String,
}

/// The server of `--smtp`, if there is one.
pub(super) fn server(args: &MonitorArgs, host: &str) -> Result<Option<Server>, Failure> {
    let Some(url) = &args.smtp else { return Ok(None) };
    let password = args.smtp_password.as_deref();
    Server::new(url, password, args.mail_from.as_deref(), host, ANSWER_TAKES).map(Some)
}

/// Returns the recipient of mail by SMTP.
pub(super) fn recipient(address: &str) -> Result<Mailbox, Failure> {
    Ok(Mailbox::new(None, mail_address(address)?))
}

fn mail_address(address: &str) -> Result<Address, Failure> {
    address.parse().map_err(|_| {
        let next = "write NAME@DOMAIN; only sendmail knows names without a domain";
        Failure::usage("monitor", address, "is no address of SMTP's", next)
    })
}

impl Server {
    fn new(
        url: &str,
        password: Option<&Path>,
        from: Option<&str>,
        host: &str,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let from = match from {
            Some(from) => mail_address(from)?,
            None => Address::new("root", host).map_err(|_| {
                let next = "say whom mail is from: --mail-from NAME@DOMAIN";
                Failure::usage("monitor", host, "this host's name is no domain of mail", next)
            })?,
        };
        let transport = SmtpTransport::from_url(&with_password(url, password)?).map_err(|_| {
            let next = "write --smtp smtps://HOST, smtp://HOST?tls=required or smtp://HOST";
            Failure::usage("monitor", url, "is no address of a mail server", next)
        })?;
        let transport = transport.timeout(Some(patience));
        let transport = transport.hello_name(ClientId::Domain(host.to_owned())).build();
        let from = Mailbox::new(Some(MAILER.to_owned()), from);
        Ok(Self { transport, from, host: host.to_owned() })
    }

    /// Sends a mail, and waits until the server has accepted it.
    ///
    /// # Errors
    /// Returns the reason for the failure, for messages.
    pub(super) fn send(&self, to: &Mailbox, message: &Message, mdstat: &str) -> Result<(), String> {
        let mail = self.mail(to, message, mdstat).map_err(|error| error.to_string())?;
        let sent = self.transport.send(&mail);
        sent.map(drop).map_err(|error| one_line(&error.to_string()))
    }

    fn mail(
        &self,
        to: &Mailbox,
        message: &Message,
        mdstat: &str,
    ) -> Result<Mail, lettre::error::Error> {
        let mail = Mail::builder()
            .from(self.from.clone())
            .to(to.clone())
            .subject(message.subject(&self.host))
            .message_id(Some(message.mail_id(&self.host)))
            .header(ContentType::TEXT_PLAIN);
        let mail = match DateTime::parse_from_rfc3339(&message.time) {
            Ok(time) => mail.date(time.into()),
            Err(_) => mail,
        };
        let mut mail = mail.body(message.text(mdstat))?;
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        mail.headers_mut().insert_raw(HeaderValue::new(automatic, "auto-generated".to_owned()));
        Ok(mail)
    }
}

/// The address of a server with the password of the user in it, as lettre takes it.
fn with_password(url: &str, password: Option<&Path>) -> Result<String, Failure> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // All may read the arguments, so what may be a password is not repeated either.
    let shown = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let refused = |reason, next: &'static str| Err(Failure::usage("monitor", shown, reason, next));
    let uri = url.parse::<Uri>().ok();
    // A word misspelt must not make it unencrypted.
    let known = |uri: &Uri| uri.path().len() < 2 && matches!(uri.query(), None | Some(STARTTLS));
    let Some(uri) = uri.filter(|uri| uri.host().is_some() && known(uri)) else {
        let next = "write --smtp smtps://HOST, smtp://HOST?tls=required or smtp://HOST";
        return refused("is no address of a mail server", next);
    };
    let user = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
    let Some((user, _)) = user else {
        return match password {
            None => Ok(url.to_owned()),
            Some(_) => refused("--smtp names no user", "write --smtp smtps://USER@HOST"),
        };
    };
    if user.contains(':') {
        return refused(
            "all can read a password in arguments",
            "write it into a file, and give --smtp-password FILE",
        );
    }
    let Some(file) = password else {
        return refused("that user has no password", "give --smtp-password FILE");
    };
    if scheme != "smtps" && uri.query() != Some(STARTTLS) {
        return refused(
            "a password would go there unencrypted",
            "write smtps://…, or smtp://…?tls=required",
        );
    }
    let make = "write the password into that file: (umask 077; cat > FILE)";
    let password = secret::read(file, "the password", make)?;
    let password: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
    Ok(format!("{scheme}://{user}:{password}@{shown}"))
}

#[cfg(test)]
mod tests;
