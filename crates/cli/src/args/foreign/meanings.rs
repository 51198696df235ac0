//! Tables of words: what other programs call what Braid does, and what they take as arguments.

/// Words with one meaning, and the command that does it here.
pub(super) struct Meaning {
    pub(super) words: &'static [&'static str],
    /// Remark in front of the command; empty where the command says all.
    pub(super) advice: &'static str,
    /// Templates, of which the first that fits is used. NAME is the array, CONFIGURED the array
    /// where arrays.toml has it, ONLY the array where there are no other words, REST these, FIRST
    /// and SECOND two of them, and ALL the words as typed. SCAN stands for `--scan` that was typed,
    /// EXPAND for `-e`.
    pub(super) commands: &'static [&'static str],
}

const fn meaning(
    words: &'static [&'static str],
    advice: &'static str,
    commands: &'static [&'static str],
) -> Meaning {
    Meaning { words, advice, commands }
}

const ASSEMBLE: &[&str] =
    &["assemble NAME REST", "up CONFIGURED", "assemble NAME --scan", "assemble --scan"];
const DETAIL: &[&str] = &["detail NAME REST", "detail NAME", "detail --scan"];
const ATTACH: &str = "for one more copy of a mirror braid grow takes --raid-devices and --add; \
                      a spare";
const DESTROY: &str = "stop the array, then braid zero-superblock removes the superblocks of its \
                       members, which are listed by";
const RECOVERY: &str = "a recovery begins by itself when braid add has given the array a device; \
                        how far it is";

pub(super) const MEANINGS: &[Meaning] = &[
    // To start and to stop.
    meaning(&["import", "start", "open", "activate", "run", "load"], "", ASSEMBLE),
    meaning(&["--assemble", "-A", "-As"], "", ASSEMBLE),
    meaning(&["--build", "-B"], "without superblocks an array is read", &["assemble --help"]),
    meaning(
        &["restart", "reload", "reboot"],
        "a new version takes over without a stop (braid upgrade); else start it again after",
        &["stop NAME", "stop --help"],
    ),
    meaning(
        &["--stop", "-S", "halt", "shutdown", "close", "deactivate", "end", "quit", "unload"],
        "",
        &["stop NAME", "stop --all SCAN", "stop --help"],
    ),
    // To make and to unmake.
    meaning(
        &["--create", "-C", "initialize", "initialise", "init", "format", "mkfs", "make", "new"],
        "",
        &["create NAME REST", "create --help"],
    ),
    meaning(
        &["destroy", "delete", "del", "rm", "erase", "wipe", "disband"],
        DESTROY,
        &["detail NAME", "zero-superblock --help"],
    ),
    meaning(
        &["--zero-superblock", "labelclear"],
        "",
        &["zero-superblock ALL", "zero-superblock --help"],
    ),
    meaning(
        &["reshape", "--grow", "-G", "expand", "extend", "shrink", "convert", "resize"],
        "",
        &["grow NAME REST", "grow --help"],
    ),
    // To look.
    meaning(
        &["info", "show", "query", "get", "describe", "inspect", "print", "--query", "-Q"],
        "",
        &["detail NAME", "examine ALL", "status"],
    ),
    meaning(&["--detail", "-D"], "", DETAIL),
    meaning(&["-Ds", "--scan", "-s"], "", &["detail --scan"]),
    meaning(&["--examine", "-E", "--examine-bitmap", "-X"], "", &["examine ALL", "examine --help"]),
    meaning(&["-Es", "scan", "discover", "detect", "find"], "", &["examine --scan"]),
    meaning(&["stat", "state", "health", "ps", "df"], "", &["status NAME", "status"]),
    meaning(&["iostat", "iotop"], "", &["top"]),
    meaning(&["--monitor", "--follow", "-F", "events"], "", &["monitor ALL", "monitor --help"]),
    meaning(&["watch", "wait", "--wait", "-W"], "", &["status NAME --watch", "status --watch"]),
    meaning(
        &["log", "logs", "history", "journal"],
        "`log` says where the log is",
        &["status NAME --json", "status --json"],
    ),
    meaning(&["read", "dump", "extract"], "", &["cat ONLY", "cat ALL", "cat --help"]),
    // Members.
    meaning(&["offline", "--fail", "-f", "--set-faulty"], "", &["fail NAME FIRST", "fail --help"]),
    meaning(
        &["online", "--re-add"],
        "",
        &["grow NAME --size max EXPAND", "re-add NAME FIRST", "re-add --help"],
    ),
    meaning(&["attach"], ATTACH, &["add NAME SECOND", "add NAME FIRST", "add --help"]),
    meaning(&["--add", "-a", "--add-spare", "spare"], "", &["add NAME FIRST", "add --help"]),
    meaning(
        &["detach", "--remove", "-r"],
        "a member in sync is made faulty first (braid fail)",
        &["remove NAME FIRST", "remove --help"],
    ),
    meaning(
        &["--replace", "swap", "exchange"],
        "",
        &["replace NAME FIRST --with SECOND", "replace NAME REST", "replace --help"],
    ),
    meaning(
        &["--incremental", "-I"],
        "",
        &["config join FIRST", "config join ALL", "config --help"],
    ),
    meaning(&["locate", "blink", "led"], "", &["identify NAME FIRST", "identify --help"]),
    // Background work.
    meaning(
        &["clear"],
        "errors are counted until the array is stopped, and braid re-add takes a member back; now",
        &["status NAME", "status"],
    ),
    meaning(
        &["resilver", "rebuild", "resync", "recovery"],
        RECOVERY,
        &["status NAME --watch", "status"],
    ),
    meaning(&["verify", "validate", "fsck", "test"], "", &["check NAME --wait", "check --help"]),
    meaning(
        &["fix", "heal", "mend"],
        "first look how much differs, then braid repair rewrites it",
        &["check NAME --wait", "check --help"],
    ),
    meaning(&["pause", "suspend"], "", &["limit NAME --pause", "limit --help"]),
    meaning(&["resume", "continue"], "", &["limit NAME --resume", "limit --help"]),
    meaning(&["throttle", "speed", "limits"], "", &["limit NAME", "limit --help"]),
    // Exports.
    meaning(&["mount"], "", &["export NAME add fuse:FIRST", "export --help"]),
    meaning(
        &["unmount", "umount", "unexport", "unshare"],
        "braid export NAME remove takes an export away; they are listed by",
        &["status NAME", "status"],
    ),
    meaning(&["share", "serve"], "", &["export --help"]),
    meaning(&["version"], "", &["--version"]),
];

/// Wrong arguments of a command, and the right command.
pub(super) struct WrongArguments {
    pub(super) command: &'static str,
    /// An option that the command lacks; empty where the number of words tells.
    pub(super) option: &'static str,
    /// Number of words, or 0 for any.
    pub(super) words: usize,
    pub(super) advice: &'static str,
    pub(super) commands: &'static [&'static str],
}

const fn wrong(
    command: &'static str,
    option: &'static str,
    words: usize,
    commands: &'static [&'static str],
) -> WrongArguments {
    WrongArguments { command, option, words, advice: "", commands }
}

pub(super) const WRONG_ARGUMENTS: &[WrongArguments] = &[
    WrongArguments {
        advice: "to stop it, as zpool export does",
        ..wrong("export", "", 2, &["stop NAME"])
    },
    wrong("replace", "", 4, &["replace NAME FIRST --with SECOND"]),
    wrong("stop", "--scan", 0, &["stop --all"]),
    wrong("stop", "-s", 0, &["stop --all"]),
    wrong("up", "--all", 0, &["up"]),
    wrong("up", "-a", 0, &["up"]),
    wrong("add", "--spare", 0, &["add NAME FIRST"]),
    wrong("check", "-s", 0, &["check NAME --stop"]),
    wrong("check", "-p", 0, &["limit NAME --pause"]),
    wrong("check", "--pause", 0, &["limit NAME --pause"]),
    wrong("check", "--resume", 0, &["limit NAME --resume"]),
    wrong("assemble", "--uuid", 0, &["assemble NAME REST", "assemble NAME --scan"]),
    wrong("assemble", "-u", 0, &["assemble NAME REST", "assemble NAME --scan"]),
    wrong("assemble", "--name", 0, &["assemble NAME REST", "assemble NAME --scan"]),
    wrong("monitor", "--scan", 0, &["monitor --help"]),
];
