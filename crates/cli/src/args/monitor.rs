//! Alerts, metrics and a page of all arrays that run.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::ConfigFileArgs;

const MONITOR_HELP: &str = "\
    Events: DegradedArray, ArrayFailed, Fail, FailSpare, SpareActive, RebuildStarted, Rebuild20 \
    to Rebuild80, RebuildFinished, ReshapeStarted, Reshape20 to Reshape80, ReshapeFinished, \
    NewArray, ArrayGrown, DeviceDisappeared, MismatchFound, NodeLost, DiskWarning, TestMessage. \
    Mail is sent of those that need somebody: Fail, FailSpare, DegradedArray, ArrayFailed, \
    MismatchFound, NodeLost, DiskWarning, DeviceDisappeared, TestMessage. \
    Each event is also a line on stdout. What was told is kept in monitor.json in the run \
    directory, so that over a restart nothing is told twice, and nothing lost.\n\n\
    Examples:\n  \
    braid monitor --mail root --program /usr/local/sbin/raid-event\n  \
    braid monitor --webhook https://hooks.example.org/raid --metrics 9179\n  \
    braid monitor --web 8080 --token /etc/braid/web.token\n  \
    braid monitor --mail ops@example.org --smtp smtps://mail.example.org\n  \
    braid monitor --mail root --oneshot          once a day, from cron\n  \
    braid monitor --mail root --test --oneshot   does mail arrive?";

#[derive(Debug, Args)]
#[command(after_help = MONITOR_HELP)]
pub(crate) struct MonitorArgs {
    /// Call a program with EVENT ARRAY [MEMBER] as its arguments, without a shell
    #[arg(long, short, value_name = "PATH", value_hint = ValueHint::CommandName)]
    pub(crate) program: Vec<PathBuf>,
    /// Send mail, through /usr/sbin/sendmail or to the server of --smtp
    #[arg(long, short, value_name = "ADDRESS", value_hint = ValueHint::EmailAddress)]
    pub(crate) mail: Vec<String>,
    /// Whom mail is from: root, and with --smtp root@HOST
    #[arg(long, value_name = "ADDRESS", requires = "mail", value_hint = ValueHint::EmailAddress)]
    pub(crate) mail_from: Option<String>,
    /// Send mail by this server: smtps://[USER@]HOST[:PORT] by TLS, smtp://…?tls=required after
    /// STARTTLS, or smtp://HOST[:PORT] unencrypted
    #[arg(long, value_name = "URL", requires = "mail", value_hint = ValueHint::Url)]
    pub(crate) smtp: Option<String>,
    /// The password of the USER of --smtp is in FILE
    #[arg(long, value_name = "FILE", requires = "smtp", value_hint = ValueHint::FilePath)]
    pub(crate) smtp_password: Option<PathBuf>,
    /// POST a JSON object there; http or https
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) webhook: Vec<String>,
    /// Ask the disks of members for early warnings every half hour, by smartctl (smartmontools 7 or
    /// later), or by the program given
    #[arg(long, value_name = "SMARTCTL", num_args = 0..=1, default_missing_value = "smartctl")]
    #[arg(conflicts_with = "oneshot", value_hint = ValueHint::CommandName)]
    pub(crate) smart: Option<PathBuf>,
    /// Serve OpenMetrics at http://ADDR/metrics, also of the nodes in the file of arrays and nodes:
    /// HOST:PORT, or a PORT of this machine alone
    #[arg(long, value_name = "ADDR", conflicts_with = "oneshot")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) file: ConfigFileArgs,
    /// Serve a page to look at, at http://ADDR/: HOST:PORT, or a PORT of this machine alone
    #[arg(long, value_name = "ADDR", conflicts_with = "oneshot")]
    pub(crate) web: Option<String>,
    /// Who enters on the page what is in FILE may fail, add and replace members, check, repair,
    /// set limits and change exports; without it the page is only for looking
    #[arg(long, visible_alias = "web-token", value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(requires = "web")]
    pub(crate) token: Option<PathBuf>,
    /// Tell which arrays are degraded, whether that was told before or not, and end
    #[arg(long, short = '1')]
    pub(crate) oneshot: bool,
    /// Tell a TestMessage of each array first
    #[arg(long, short)]
    pub(crate) test: bool,
    /// Look at the arrays so often
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) delay: u64,
}
