//! Commands on the pages that no test types there, with the reason. The parsers of `braid` and
//! `braid-bench` read all of them (`crates/cli/src/args/reference.rs`).

/// Lines of a page, or of all of them, that begin so.
#[derive(Debug)]
pub(super) struct Exception {
    /// Empty: on all pages.
    pub(super) page: &'static str,
    pub(super) line: &'static str,
    pub(super) reason: &'static str,
}

const fn exception(page: &'static str, line: &'static str, reason: &'static str) -> Exception {
    Exception { page, line, reason }
}

/// Commands typed by `judges/tests/typed.rs`.
const ROOT: &str = "mounts a block device, as root: judges/tests/typed.rs does in a guest";
const UBLK: &str = "needs a kernel with ublk: judges/tests/typed.rs has one in a guest";
const DISK: &str = "needs disks of the machine: judges/tests/typed.rs has them in a guest";
const HOURS: &str = "measures for minutes or hours: judges/tests/comparisons.rs has short runs";
const MAIL: &str = "sends mail from this machine: cmd/monitor/sinks.rs, live/mail.rs";
const HALFWAY: &str = "md has to stop in the middle of a reshape: judges/tests/backups.rs";
const HALF: &str = "one has to have stopped in the middle of a reshape: live/halfway.rs";
const NESTED: &str = "needs a RAID 50 without superblocks: live/recover.rs";
const TLS: &str = "names a server and a directory of another machine: live/tls.rs";

pub(super) const EXCEPTIONS: &[Exception] = &[
    exception("docs/start.md", "umount", ROOT),
    exception("docs/exports.md", "nbdcopy", TLS),
    exception("docs/exports.md", "qemu-img info", TLS),
    exception("docs/block-device.md", "braid assemble", UBLK),
    exception("docs/commands.md", "braid assemble home --scan --export ublk", UBLK),
    exception("docs/rescue.md", "braid assemble home --readonly --backup-file", HALFWAY),
    exception("docs/rescue.md", "braid cat --backup-file", HALFWAY),
    exception("docs/rescue.md", "braid assemble left --readonly", HALF),
    exception("docs/rescue.md", "braid assemble right --readonly", HALF),
    exception("docs/rescue.md", "braid assemble top --readonly", HALF),
    exception("docs/rescue.md", "braid recover d?.img", NESTED),
    exception("docs/commands.md", "braid config probe", DISK),
    exception("docs/commands.md", "braid examine --scan", DISK),
    exception("docs/commands.md", "braid top", "needs a terminal: live/top.rs has one"),
    exception("", "braid identify", DISK),
    exception("", "braid monitor --mail", MAIL),
    exception("", "braid bench", HOURS),
    exception("docs/performance.md", "make bench", HOURS),
];
