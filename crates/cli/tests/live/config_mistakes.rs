//! The file of arrays and nodes with one mistake each: the line that tells it, `braid up`, which
//! refuses by the same line, and the file once the next step is done.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::nodes::{self, Node, in_stores};
use crate::support::{Lab, fingerprint};

/// A file with one mistake. `%M0` and `%M1` are the members of the mirror `a`, `%O0` and so on of
/// the mirror `b`, `%C0` of `c` of level 5, and `%D0` of `d`, which lacks role 2.
struct Mistake {
    text: &'static str,
    /// Line, column where it is known, and key.
    at: &'static str,
    reason: &'static str,
    next: &'static str,
    /// Set if `braid up` refuses by the same line.
    stops: bool,
    cure: Cure,
}

enum Cure {
    /// Replacement of a part of the text.
    Write(&'static str, &'static str),
    /// A shell command.
    Do(&'static str),
    /// It is beyond a test.
    Nothing,
}
use Cure::{Do, Nothing, Write};

const fn refused(
    text: &'static str,
    at: &'static str,
    reason: &'static str,
    next: &'static str,
    cure: Cure,
) -> Mistake {
    Mistake { text, at, reason, next, stops: true, cure }
}

/// A mistake of which `braid up` knows, or can do without.
const fn told(
    text: &'static str,
    at: &'static str,
    reason: &'static str,
    next: &'static str,
    cure: Cure,
) -> Mistake {
    Mistake { text, at, reason, next, stops: false, cure }
}

const SYNTAX: &[Mistake] = &[
    refused(
        "[array.a\nmembers = %MEMBERS",
        ":1:9",
        "unclosed table",
        "write ] there",
        Write("[array.a\n", "[array.a]\n"),
    ),
    refused(
        "[array.a]\nmembers = [\"%M0\", \"%M1\"\nexports = []\nboot = true\n[node.n]\n",
        ":2:",
        "the list members = [ has no ]",
        "write ] behind its last text",
        Write(
            "\"%M1\"\nexports = []\nboot = true\n[node.n]",
            "\"%M1\"]\nexports = []\nboot = true",
        ),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nmax = 200M",
        ":3:7",
        "text has no quotes: 200M",
        "write max = \"200M\"",
        Write("200M", "\"200M\""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nboot = yes",
        ":3:8",
        "yes is not true or false",
        "write boot = true",
        Write("yes", "true"),
    ),
    refused(
        "[array.a]\nmembers = [\"%M0\" \"%M1\"]",
        ":2:",
        "missing comma",
        "write , there",
        Write("\" \"", "\", \""),
    ),
    refused(
        "[array.a]\n[array.a]\nmembers = %MEMBERS",
        ":2:8",
        "a is there twice",
        "leave one of them out",
        Write("[array.a]\n[array.a]", "[array.a]"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nwait = 1\nwait = 2",
        ":4:1",
        "wait is there twice",
        "leave one of them out",
        Write("wait = 2", ""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nboot true",
        ":3:",
        "key with no value",
        "write = there",
        Write("boot", "boot ="),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nmax = \"200M\nmin = \"1M\"",
        ":3:",
        "string",
        "write \" there",
        Write("200M", "200M\""),
    ),
];

const TABLES: &[Mistake] = &[
    told(
        "[arrays.a]\nmembers = %MEMBERS",
        ":1: arrays",
        "there is no such key here",
        "did you mean array?",
        Write("arrays", "array"),
    ),
    told(
        "[array]\nmembers = %MEMBERS",
        ":2: array.members",
        "must be a table",
        "write [array.NAME]",
        Write("[array]", "[array.a]"),
    ),
    told(
        "boot = true\n[array.a]\nmembers = %MEMBERS",
        ":1: boot",
        "there is no such key here",
        "and keys below that",
        Write("boot = true\n", ""),
    ),
    refused(
        "[array.'a b']\nmembers = %MEMBERS",
        ":1: array.a b",
        "a name cannot contain ' ' here",
        "use letters, digits",
        Write("'a b'", "a"),
    ),
    refused(
        "[array.'a;b']\nmembers = %MEMBERS",
        ":1: array.a;b",
        "a name cannot contain ';' here",
        "uuid = \"...\"",
        Write("[array.'a;b']", "[array.ab]\nuuid = \"%UUID\""),
    ),
    refused(
        "[array.'a/b']\nmembers = %MEMBERS",
        ":1: array.a/b",
        "a name cannot contain '/' here",
        "use letters, digits",
        Write("'a/b'", "a"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\n[node.a]\nlisten = \"127.0.0.1:7000\"\nmemory = true",
        ":1: array.a",
        "a node has the same name",
        "give one of them another name",
        Write("node.a", "node.n"),
    ),
];

const KEYS: &[Mistake] = &[
    refused(
        "[array.a]\nmembers = %MEMBERS\nexprots = []",
        ":3: array.a.exprots",
        "there is no such key",
        "did you mean exports?",
        Write("exprots", "exports"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nreadonly = \"yes\"",
        ":3: array.a.readonly",
        "must be true or false, and is text",
        "write readonly = true or readonly = false",
        Write("\"yes\"", "true"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nwait = \"30\"",
        ":3: array.a.wait",
        "must be a whole number of seconds, and is text",
        "write wait = 30",
        Write("\"30\"", "30"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nwait = 100000",
        ":3: array.a.wait",
        "100000 seconds",
        "from 0 to 86400",
        Write("100000", "86400"),
    ),
    refused(
        "[array.a]\nmembers = [\n\"%M0\",\n5]",
        ":4: array.a.members",
        "must be a list of texts in quotes, and is a number",
        "write members = [\"...\", \"...\"]",
        Write("5", "\"%M1\""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\ndegraded = \"no\"",
        ":3: array.a.degraded",
        "\"no\": must be start or refuse",
        "degraded = \"refuse\"",
        Write("\"no\"", "\"refuse\""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nuuid = \"12\"",
        ":3: array.a.uuid",
        "\"12\": is no UUID",
        "as braid detail",
        Write("\"12\"", "\"%UUID\""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nscan = true",
        ":1: array.a.scan",
        "is true, and members are named as well",
        "leave out scan, or members",
        Write("scan = true", ""),
    ),
    refused(
        "[array.a]\nscan = false",
        ":1: array.a.scan",
        "is false, and no members are named",
        "name them: members = [",
        Write("scan = false", "members = %MEMBERS"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nkey = \"/k\"",
        ":3: array.a.key",
        "is for arrays over nodes",
        "leave it out",
        Write("key = \"/k\"", ""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nschedule = \"chain\"",
        ":3: array.a.schedule",
        "is for arrays over nodes",
        "leave it out",
        Write("schedule = \"chain\"", ""),
    ),
    told(
        "[array.a]\nmembers = %MEMBERS\nwitnesses = [\"h:1\"]",
        ":3: array.a.witnesses",
        "is for arrays over nodes",
        "leave it out",
        Write("witnesses = [\"h:1\"]", ""),
    ),
    told(
        "[array.a]\nmembers = %MEMBERS\nmax = 200",
        ":3: array.a.max",
        "max = 200 is 200 bytes a second",
        "write 200M",
        Write("200", "\"200M\""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nmax = \"lots\"",
        ":3: array.a.max",
        "\"lots\": not a size",
        "none for no limit",
        Write("lots", "none"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nmin = \"2M\"\nmax = \"1M\"",
        ":1: array.a.min",
        "2M is more than max, 1M",
        "swap them",
        Write("min = \"2M\"\nmax = \"1M\"", "min = \"1M\"\nmax = \"2M\""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nmax = \"5M@22:00-06:00=8M,05:00-07:00=9M\"",
        ":3: array.a.max",
        "22:00-06:00 and 05:00-07:00 overlap",
        "let each begin when the one before it has ended",
        Write("05:00-07:00", "06:00-07:00"),
    ),
];

const EXPORTS: &[Mistake] = &[
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = \"nbd:%DIR/a\"",
        ":3: array.a.exports",
        "is unknown",
        "use nbd:unix:PATH",
        Write("nbd:", "nbd:unix:"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = [\n\"nbd:unix:%DIR/a\",\n\
         \"nbd:unix:%DIR/no/a,name=x\"]",
        ":5: array.a.exports",
        "there is no directory %DIR/no",
        "make it: mkdir -p %DIR/no",
        Do("mkdir -p %DIR/no"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = \"vhost-user:%DIR/guests/a\"",
        ":3: array.a.exports",
        "there is no directory %DIR/guests",
        "make it: mkdir -p %DIR/guests",
        Do("mkdir -p %DIR/guests"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = \"fuse:%DIR/mnt/a\"",
        ":3: array.a.exports",
        "no such directory",
        "make it: mkdir -p %DIR/mnt/a",
        Do("mkdir -p %DIR/mnt/a"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = \"nbd:unix:%DIR/a,offset=1000\"",
        ":3: array.a.exports",
        "offset=1000 is not a multiple of the array's blocks",
        "use offset=",
        Write("1000", "8K"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = \"nbd:unix:%DIR/a,size=1G\"",
        ":3: array.a.exports",
        "beyond the end of the array",
        "at most, or leave size= out",
        Write(",size=1G", ""),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\n\
         exports = [\"nbd:unix:%DIR/a\", \"nbd:unix:%DIR/b,size=1M\"]",
        ":3: array.a.exports",
        "some of these are its own too",
        "add readonly to one of the two",
        Write("size=1M", "size=1M,readonly"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = \"nbd:tcp:0.0.0.0:1\"",
        ":3: array.a.exports",
        "could read and write",
        "write insecure = true",
        Write("exports", "insecure = true\nexports"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = \"nbd:unix:%DIR/a,mode=99\"",
        ":3: array.a.exports",
        "mode=99 is no mode",
        "give it in octal",
        Write("99", "0660"),
    ),
    refused(
        "[array.a]\nmembers = %MEMBERS\nexports = \"nbd:tcp:127.0.0.1:1,tls=%DIR/tls\"",
        ":3: array.a.exports",
        "%DIR/tls/server-cert.pem",
        "",
        Write(",tls=%DIR/tls", ""),
    ),
    told(
        "[array.a]\nmembers = %MEMBERS\nexports = \"nbd:unix:%DIR/s\"\n\
         [array.b]\nmembers = [\"%O0\", \"%O1\"]\nexports = \"nbd:unix:%DIR/s\"",
        ":6: array.b.exports",
        "is an export of a in line 3",
        "choose another place",
        Write("%DIR/s\"\n[", "%DIR/t\"\n["),
    ),
];

const MEMBERS: &[Mistake] = &[
    refused(
        "[array.a]\nmembers = [\"%M0\", \"m1\"]",
        ":2: array.a.members",
        "\"m1\": is no absolute path",
        "begin it with a slash",
        Write("\"m1\"", "\"%M1\""),
    ),
    refused(
        "[array.a]\nmembers = [\"%M0\",\n\"%M1\",\n\"%M0\"]",
        ":4: array.a.members",
        "is named twice",
        "name it once",
        Write(",\n\"%M0\"]", "]"),
    ),
    told(
        "[array.a]\nmembers = [\"%M0\",\n\"%LINK\"]",
        ":3: array.a.members",
        "%LINK: ",
        "",
        Write("%LINK", "%M1"),
    ),
    refused(
        "[array.a]\nmembers = [\"%M0\", \"node://h:1/v\"]",
        ":2: array.a.members",
        "either all of its members on nodes or none",
        "name members of one kind",
        Write("node://h:1/v", "%M1"),
    ),
    told(
        "[array.a]\nmembers = [\"%M0\",\n\"/no/such\"]",
        ":3: array.a.members",
        "/no/such is not there",
        "attach it, or write the path of the disk in its place",
        Write("/no/such", "%M1"),
    ),
    told(
        "[array.a]\nmembers = [\"%M0\", \"%M1\",\n\"%BLANK\"]",
        ":3: array.a.members",
        "%BLANK: ",
        "take it out of members",
        Write(",\n\"%BLANK\"", ""),
    ),
    told(
        "[array.a]\nmembers = [\"%M0\", \"%M1\",\n\"%O0\"]",
        ":3: array.a.members",
        "%O0 belongs to array ",
        "take it out of members",
        Write(",\n\"%O0\"", ""),
    ),
    told(
        "[array.a]\nmembers = %MEMBERS\nuuid = \"00000000-0000-0000-0000-000000000001\"",
        ":2: array.a.members",
        "not to the uuid here",
        "write uuid = ",
        Write("00000000-0000-0000-0000-000000000001", "%UUID"),
    ),
    refused(
        "[array.c]\nmembers = [\"%C0\", \"%C1\"]\nwait = 86400",
        ":2: array.c.members",
        "c has 3 members, and role 2 is in none of those named",
        "add its path, or start it without: braid assemble --run c %C0 %C1",
        Write("\"%C1\"]", "\"%C1\", \"%C2\"]"),
    ),
    refused(
        "[array.c]\nmembers = [\"%C1\"]\nwait = 86400",
        ":2: array.c.members",
        "c has 3 members, and roles 0, 2 are in none of those named",
        "add their paths\n",
        Write("\"%C1\"]", "\"%C0\", \"%C1\", \"%C2\"]"),
    ),
    told(
        "[array.d]\nmembers = [\"%D0\", \"%D1\"]",
        ":2: array.d.members",
        "d has 3 members, and role 2 is in none of those named",
        "add its path\n",
        Nothing,
    ),
];

const NODES: &[Mistake] = &[
    refused(
        "[node.n]\nmemory = true",
        ":1: node.n.listen",
        "is missing",
        "write listen = \"HOST:PORT\"",
        Write("memory", "listen = \"127.0.0.1:7000\"\nmemory"),
    ),
    refused(
        "[node.n]\nlisten = \"127.0.0.1:7000\"",
        ":1: node.n.store",
        "has no store",
        "write store = \"DIRECTORY\"",
        Write("[node.n]", "[node.n]\nstore = \"%DIR/n\""),
    ),
    refused(
        "[node.n]\nlisten = \"0.0.0.0:7000\"\nmemory = true",
        ":1: node.n",
        "without a cluster key it listens on loopback addresses only",
        "give it with key = \"FILE\", or say no_key = true where",
        Write("memory", "no_key = true\nmemory"),
    ),
    refused(
        "[node.n]\nlisten = \"127.0.0.1:7000\"\nmemory = true\nring = \"1\"",
        ":1: node.n",
        "a ring of 1 bytes",
        "use ring = \"64K\" or more",
        Write("\"1\"", "\"64K\""),
    ),
    refused(
        "[node.n]\nlisten = \"127.0.0.1:7000\"\nmemory = true\nencrypt = true",
        ":1: node.n",
        "there is none",
        "or leave encrypt = true out",
        Write("encrypt = true", ""),
    ),
    refused(
        "[array.n]\nmembers = [\"node://127.0.0.1:1/v\"]\nwait = 0\nkey = \"%DIR/new.key\"",
        ":1: array.n.key",
        "there is no file %DIR/new.key",
        "braid key new %DIR/new.key makes one",
        Do("braid key new %DIR/new.key"),
    ),
    refused(
        "[array.n]\nmembers = [\"node://127.0.0.1:1/v\"]\nwait = 0\nwitnesses = [\"127.0.0.1:1\"]",
        ":1: array.n.witnesses",
        "has a member of the array, and votes anyway",
        "name a node that has none",
        Write("[\"127.0.0.1:1\"]", "[\"127.0.0.1:2\"]"),
    ),
];

/// A directory with the members of all arrays.
struct Bench {
    lab: Lab,
    members: Vec<PathBuf>,
    uuid: String,
}

impl Bench {
    fn new() -> Self {
        let lab = Lab::new();
        let mut members = Vec::new();
        for (name, shape, count) in [
            ("a", "-l 1 -n 2", 2),
            ("b", "-l 1 -n 2", 2),
            ("c", "-l 5 -n 3", 3),
            ("d", "-l 5 -n 3 missing", 2),
        ] {
            let own = lab.members(name, count, 8);
            let paths = own.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            let shape = match shape.strip_suffix(" missing") {
                Some(shape) => format!("{shape} {} missing", paths.join(" ")),
                None => format!("{shape} {}", paths.join(" ")),
            };
            lab.ok(&format!("create {name} --assume-clean {shape}"), &[]);
            members.extend(own);
        }
        members.extend(lab.members("blank", 1, 8));
        std::os::unix::fs::symlink(&members[0], lab.path("link")).expect("a link");
        let examined = lab.ok_text("examine --export", &members[..1]);
        let uuid = examined.lines().find_map(|line| line.strip_prefix("MD_UUID="));
        let uuid = uuid.expect("a UUID").to_owned();
        Self { lab, members, uuid }
    }

    /// The text with the paths of this directory.
    fn text(&self, text: &str) -> String {
        let path = |name: &str| self.lab.path(name).display().to_string();
        let text = text.replace("%MEMBERS", "[\"%M0\", \"%M1\"]").replace("%UUID", &self.uuid);
        let text = text.replace("%BLANK", &path("blank0")).replace("%LINK", &path("link"));
        let names = [("M", "a"), ("O", "b"), ("C", "c"), ("D", "d")];
        let names = names.iter().flat_map(|(letter, array)| {
            (0..3).map(move |number| (format!("%{letter}{number}"), format!("{array}{number}")))
        });
        let text = names.fold(text, |text, (from, to)| text.replace(&from, &path(&to)));
        text.replace("%DIR", self.lab.path("").display().to_string().trim_end_matches('/'))
    }

    fn write(&self, text: &str) {
        std::fs::write(self.lab.path("arrays.toml"), self.text(text)).expect("a file");
    }

    fn braid(&self, words: &[&str]) -> Output {
        let mut command = self.lab.braid();
        command.env("BRAID_CONFIG", self.lab.path("arrays.toml")).args(words);
        command.output().expect("braid runs")
    }

    /// The one line by which a command is refused.
    fn refusal(&self, words: &[&str], text: &str) -> String {
        let Output { status, stderr, .. } = self.braid(words);
        let said = String::from_utf8(stderr).expect("text");
        assert_eq!(status.code(), Some(1), "braid {words:?}: {text}\n{said}");
        assert_eq!(said.lines().count(), 1, "braid {words:?}: {text}\n{said}");
        said
    }

    fn fingerprints(&self) -> Vec<u64> {
        self.members.iter().map(|member| fingerprint(member)).collect()
    }

    fn cure(&self, mistake: &Mistake) {
        match mistake.cure {
            Write(from, to) => {
                assert!(mistake.text.contains(from), "{}", mistake.text);
                self.write(&mistake.text.replacen(from, to, 1));
            }
            Do(words) => {
                let bin = Path::new(env!("CARGO_BIN_EXE_braid")).parent().expect("a directory");
                let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(self.text(words)).env("PATH", path);
                let done = shell.output().expect("a shell");
                assert!(done.status.success(), "{done:?}");
            }
            Nothing => return,
        }
        let Output { status, stdout, stderr } = self.braid(&["config", "check"]);
        let stdout = String::from_utf8_lossy(&stdout);
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success() && stdout.contains("all well"), "{}\n{stderr}", mistake.text);
    }
}

/// The name of the first entry.
fn name(text: &str) -> &str {
    let head = text.lines().find(|line| line.starts_with('[')).expect("an entry");
    let (_, name) = head.split_once('.').expect("a name");
    name.trim_matches([']', '\''])
}

#[test]
fn a_mistake_is_told_by_check_and_up_alike_and_its_step_mends_the_file() {
    let bench = Bench::new();
    let tables = [SYNTAX, TABLES, KEYS, EXPORTS, MEMBERS, NODES];
    assert!(tables.iter().map(|table| table.len()).sum::<usize>() >= 45);
    let before = bench.fingerprints();
    for mistake in tables.into_iter().flatten() {
        let Mistake { text, at, reason, next, stops, .. } = mistake;
        bench.write(text);
        let said = bench.refusal(&["config", "check"], text);
        let file = bench.lab.path("arrays.toml").display().to_string();
        let (_, told) = said.split_once(&file).expect("the file");
        assert!(told.starts_with(at), "{text}: {said}");
        let (why, step) = told.split_once("; ").expect("a next step");
        assert!(why.contains(&bench.text(reason)), "{text}: {said}");
        assert!(step.contains(&bench.text(next)), "{text}: {said}");
        assert!(!step.contains("--key") && !step.contains("--no-key"), "{text}: {said}");
        if *stops {
            let refused = bench.refusal(&["up", name(text)], text);
            assert_eq!(refused, said.replace("config check", "up"), "{text}");
        }
        bench.cure(mistake);
    }
    assert!(bench.fingerprints() == before, "a member was changed");
}

/// A start of everything in the file tells what is no entry of it.
#[test]
fn what_is_no_entry_is_told_by_up() {
    let bench = Bench::new();
    for text in ["[arrays.a]\nmembers = %MEMBERS", "[array.a\n[node.n]\n", "[array]\nx = 1"] {
        bench.write(text);
        let said = bench.refusal(&["config", "check"], text);
        assert_eq!(bench.refusal(&["up"], text), said.replace("config check", "up"));
    }
}

/// A kernel without ublk.
#[test]
fn a_block_device_that_the_kernel_cannot_make_is_told() {
    let bench = Bench::new();
    let text = "[array.a]\nmembers = %MEMBERS\nexports = [\"ublk:0\", \"ublk:1\"]";
    bench.write(text);
    let Output { status, stderr, .. } = bench.braid(&["config", "check"]);
    let said = String::from_utf8(stderr).expect("text");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the array has a device already; name one"), "{said}");
    if Path::new("/dev/ublk-control").exists() {
        return;
    }
    bench.write(&text.replace(", \"ublk:1\"", ""));
    let said = bench.refusal(&["config", "check"], text);
    assert!(said.contains(":3: array.a.exports: this kernel has no ublk"), "{said}");
    assert!(said.contains("; try modprobe ublk_drv"), "{said}");
    let refused = bench.refusal(&["up", "a"], text);
    assert_eq!(refused, said.replace("config check", "up"));
}

/// A list that is too short is no loss of a disk.
#[test]
fn a_lost_disk_degrades_an_array_and_a_forgotten_one_stops_it() {
    let bench = Bench::new();
    let lost = "[array.c]\nmembers = [\"%C0\", \"%C1\", \"%C3\"]\nwait = 0\n";
    let up = |text: &str| {
        bench.write(text);
        let Output { status, stderr, .. } = bench.braid(&["up", "c"]);
        (status.success(), String::from_utf8(stderr).expect("text"))
    };
    // One of two that are missing is named.
    let before = bench.fingerprints();
    let (started, said) = up("[array.c]\nmembers = [\"%C0\", \"/no/such\"]\nwait = 0\n");
    assert!(!started && said.contains("roles 1, 2 are in none of the named ones"), "{said}");
    assert!(bench.fingerprints() == before, "a member was changed");
    let (started, said) = up(&(lost.replace("%C3", "/no/such") + "degraded = \"refuse\""));
    assert!(!started && said.contains("it must not start without"), "{said}");
    assert!(bench.fingerprints() == before, "a member was changed");

    let (started, said) = up(&lost.replace("%C3", "/no/such"));
    assert!(started && said.contains("members are missing after 0 s: /no/such"), "{said}");
    bench.lab.ok("stop c", &[]);
    // The superblocks tell of the loss now: with two or three names it starts, but not so that
    // nobody hears of it; and where it must not be degraded, it does not.
    let short = "[array.c]\nmembers = [\"%C0\", \"%C1\"]\n";
    let (started, said) = up(&format!("{short}degraded = \"refuse\""));
    assert!(!started && said.contains("1 role has no member in sync"), "{said}");
    assert!(said.contains("degraded = \"refuse\""), "{said}");
    let all = "[array.c]\nmembers = [\"%C0\", \"%C1\", \"%C2\"]\ndegraded = \"refuse\"";
    bench.write(all);
    let said = bench.refusal(&["config", "check"], all);
    assert!(said.contains("no member in sync") && said.contains("braid assemble"), "{said}");
    let (started, said) = up(short);
    assert!(
        started && said.contains("role 2 is in none of those named (BRAID-302); add its path"),
        "{said}"
    );
    bench.lab.ok("stop c", &[]);
}

/// The members of an array of arrays are those of the inner ones.
#[test]
fn a_member_of_an_inner_array_is_missed() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let file = lab.path("arrays.toml");
    let list = |members: &[PathBuf]| {
        let paths = members.iter().map(|path| format!("\"{}\"", path.display()));
        let paths = paths.collect::<Vec<_>>().join(", ");
        std::fs::write(&file, format!("[array.top]\nmembers = [{paths}]\n")).expect("a file");
        format!("config check {}", file.display())
    };
    assert!(lab.ok_text(&list(&members), &[]).contains("all well"));
    let line = lab.refused(1, &list(&members[..3]), &[], &members);
    assert!(line.contains("right has 2 members, and role 1 is in none of those named"), "{line}");
    let up = format!("up top --config {}", file.display());
    let refused = lab.refused(1, &up, &[], &members);
    assert_eq!(refused, line.replace("config check", "up"));
}

/// `degraded = "refuse"` holds over nodes, too.
#[test]
fn an_array_over_nodes_that_must_be_whole_waits_for_its_nodes() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let all = nodes::members(&nodes, "/x");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M{all}"), &[]);
    let paths = all.split_whitespace().map(|path| format!("\"{path}\""));
    let members = format!("members = [{}]", paths.collect::<Vec<_>>().join(", "));
    let file = lab.path("arrays.toml");
    let text = format!("[array.x]\n{members}\nwait = 0\ndegraded = \"refuse\"\n");
    std::fs::write(&file, &text).expect("a file");
    let up = format!("up x --config {}", file.display());
    let gone = nodes.pop().expect("four");
    let address = gone.address.clone();
    gone.stop();
    let output = lab.run(&up, &[]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no member in sync, and the file says degraded = \"refuse\""), "{said}");
    nodes.push(Node::start_at(&lab, &address, &stores[3]));
    lab.ok(&up, &[]);
    lab.ok("stop x", &[]);
    nodes.pop().expect("four").stop();
    std::fs::write(&file, text.replace("refuse", "start")).expect("a file");
    lab.ok(&up, &[]);
}
