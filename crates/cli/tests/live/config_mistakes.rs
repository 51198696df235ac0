//! The file of arrays and nodes with one mistake each: the line that tells it, `braid up`, which
//! refuses by the same line, and the file once the next step is done.

mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::nodes::{self, Node, in_stores};
use crate::support::{Lab, fingerprint};
use table::Cure::{Do, Nothing, Write};
use table::{EXPORTS, KEYS, MEMBERS, Mistake, NODES, SYNTAX, TABLES};

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
