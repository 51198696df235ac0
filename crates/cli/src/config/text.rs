//! Parsing of the text of the file: arrays, nodes and problems.

use std::path::Path;

use braid_array::Refusal;
use braid_array::name::check_new_name;
use braid_host::serve::{ExportPlace, ExportSpec};
use toml::de::{DeTable, DeValue};

use super::entry::{Entry, Lines};
use super::{ArrayEntry, Config, Located, Problem, array, node, syntax};
use crate::args::similar;
use crate::output::entry::is_entry_char;

/// Reads all that can be read.
pub(super) fn parse(path: &Path, text: &str) -> Config {
    let lines = Lines(text);
    let mut config = Config {
        path: path.to_owned(),
        arrays: Vec::new(),
        nodes: Vec::new(),
        problems: Vec::new(),
    };
    let (root, errors) = DeTable::parse_recoverable(text);
    for (key, value) in root.get_ref() {
        let kind = key.get_ref().as_ref();
        let line = lines.at(key.span().start);
        match (kind, value.get_ref()) {
            ("array" | "node", DeValue::Table(entries)) => {
                read_entries(&mut config, lines, kind, entries);
            }
            _ => config.problems.push(unknown(kind, line)),
        }
    }
    config.problems.extend(twice(&config));
    config.arrays.sort_by_key(|array| array.line);
    config.nodes.sort_by_key(|node| node.line);
    config.problems.sort_by_key(|problem| problem.line);
    // The entries are still good to tell whose a device is, but say nothing of what was meant.
    if let Some(mistake) = syntax::mistake(text, &errors) {
        config.problems = vec![mistake];
    }
    config
}

fn read_entries(config: &mut Config, lines: Lines<'_>, kind: &str, entries: &DeTable<'_>) {
    for (key, value) in entries {
        let name = key.get_ref().as_ref();
        let path = format!("{kind}.{name}");
        let line = lines.at(key.span().start);
        if let Err(Refusal { reason, next }) = check_entry_name(name) {
            config.problems.push(Problem::new(line, &*path, reason, next));
        }
        let DeValue::Table(table) = value.get_ref() else {
            let next = format!("write [{kind}.NAME], and its keys below");
            config.problems.push(Problem::new(line, path, "must be a table", next));
            continue;
        };
        let mut entry = Entry::new(lines, path, line, table);
        if kind == "array" {
            config.arrays.push(array::read(name, &mut entry));
        } else {
            config.nodes.push(node::read(name, &mut entry));
        }
        config.problems.extend(entry.finish());
    }
}

/// Checks that an entry can have this name, and a unit of systemd, too.
fn check_entry_name(name: &str) -> Result<(), Refusal> {
    if let Some(odd) = name.chars().find(|c| !is_entry_char(*c)) {
        let next = "use letters, digits, '.', '_' and '-'; an array with another name is found by \
                    uuid = \"...\", and over nodes is given one by braid rename";
        return Err(Refusal::new(format!("a name cannot contain {odd:?} here"), next));
    }
    Ok(check_new_name(name)?)
}

fn unknown(kind: &str, line: usize) -> Problem {
    let tables = "write [array.NAME] or [node.NAME], and keys below that";
    let next = match similar(kind, ["array", "node"]) {
        Some(meant) if meant != kind => format!("did you mean {meant}? {tables}"),
        _ => tables.to_owned(),
    };
    Problem::new(line, kind, "there is no such key here", next)
}

/// Returns problems of values that only one entry may have.
fn twice(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    for array in config.arrays.iter().filter(|array| config.node(&array.name).is_some()) {
        let reason = "a node has the same name";
        let key = format!("array.{}", array.name);
        problems.push(Problem::new(array.line, key, reason, "give one of them another name"));
    }
    let exports = config
        .arrays
        .iter()
        .flat_map(|array| array.exports.iter().map(move |export| (array, export)));
    let exports: Vec<_> = exports.collect();
    for (index, (array, export)) in exports.iter().enumerate() {
        let address = export.value.address();
        let same =
            |(_, other): &&(_, &Located<ExportSpec>)| -> bool { other.value.address() == address };
        if matches!(export.value.place, ExportPlace::Ublk(None)) {
            continue;
        }
        if let Some((first, other)) = exports[..index].iter().find(same) {
            let reason = format!("{address} is an export of {} in line {}", first.name, other.line);
            let key = format!("array.{}.exports", array.name);
            problems.push(Problem::new(export.line, key, reason, "choose another place"));
        }
    }
    for (index, node) in config.nodes.iter().enumerate() {
        if let Some(other) = config.nodes[..index].iter().find(|one| one.listen == node.listen)
            && !node.listen.is_empty()
        {
            let reason = format!("{} listens at {}, too", other.name, node.listen);
            let key = format!("node.{}.listen", node.name);
            problems.push(Problem::new(node.line, key, reason, "choose another port"));
        }
    }
    for (index, array) in config.arrays.iter().enumerate() {
        let same = |other: &&ArrayEntry| array.uuid.is_some() && other.uuid == array.uuid;
        if let Some(other) = config.arrays[..index].iter().find(same) {
            let reason = format!("{} has the same uuid", other.name);
            let key = format!("array.{}.uuid", array.name);
            problems.push(Problem::new(array.line, key, reason, "leave one of them out"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let config = parse(Path::new("/f"), text);
        let said = config.problems.iter().map(|problem| {
            let next = crate::invocation::next_step(&problem.next);
            format!("{}: {}: {}; {next}", problem.line, problem.key, problem.reason)
        });
        said.collect()
    }

    #[test]
    fn a_file_is_read() {
        let text = "
            [array.home]
            uuid = \"12345678:9abcdef0:12345678:9abcdef0\"
            members = [\"/dev/sda\", \"/dev/sdb\"]
            exports = \"nbd:unix:/run/home,mode=0660\"
            max = \"200M@22:00-06:00=none\"
            min = 1048576
            degraded = \"refuse\"
            [array.far]
            members = [\"node://a:1\", \"node://b:1\"]
            key = \"/etc/k\"
            schedule = \"chain\"
            [node.n1]
            listen = \"127.0.0.1:7001\"
            store = \"/srv/n1\"
            ";
        assert_eq!(problems(text), [""; 0]);
        let config = parse(Path::new("/f"), text);
        let home = config.array("home").unwrap();
        assert_eq!(home.members[1], Located { line: 4, value: "/dev/sdb".into() });
        assert!(!home.degraded && home.boot && home.wait.as_secs() == 30);
        assert_eq!(home.limits.min.as_ref().unwrap().usual, 1 << 20);
        assert_eq!(home.limits.max.as_ref().unwrap().windows.len(), 1);
        assert_eq!(home.uuid.as_deref(), Some("123456789abcdef0123456789abcdef0"));
        assert!(config.array("far").unwrap().is_over_nodes());
        assert_eq!(config.names(), ["n1", "home", "far"]);
    }

    /// A row of a table of the page of configuration: key, type, default, example, meaning.
    fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
        let (_, section) = page.split_once(&format!("## {heading}\n")).expect(heading);
        let section = section.split("\n## ").next().expect("a section");
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
    }

    fn keys_of(rows: &[Vec<&str>]) -> BTreeSet<String> {
        rows.iter().map(|row| row[0].trim_matches('`').to_owned()).collect()
    }

    #[test]
    fn the_page_of_configuration_has_every_key_and_its_examples_are_right() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (nothing, _) = DeTable::parse_recoverable("");
        let entry = || Entry::new(Lines(""), String::new(), 1, nothing.get_ref());
        let known = |entry: &Entry<'_>| entry.known().iter().copied().map(str::to_owned).collect();
        let local = rows(&page, "Keys of an array");
        let over_nodes = rows(&page, "Keys of an array over nodes");
        let of_node = rows(&page, "Keys of a node");
        let mut asked = entry();
        array::read("a", &mut asked);
        let documented: BTreeSet<String> = keys_of(&[local.clone(), over_nodes.clone()].concat());
        assert_eq!(documented, known(&asked));
        let mut asked = entry();
        node::read("n", &mut asked);
        assert_eq!(keys_of(&of_node), known(&asked));

        let arrays = local.iter().map(|row| ("[array.a]\n", row));
        let over_nodes =
            over_nodes.iter().map(|row| ("[array.a]\nmembers = \"node://h:1/v\"\n", row));
        let nodes = of_node.iter().map(|row| {
            let given = [("listen", "listen = \"h:1\"\n"), ("store", "store = \"/s\"\n")];
            let given = given.iter().filter(|(key, _)| {
                let own = row[0].trim_matches('`');
                *key != own && !(*key == "store" && own == "memory")
            });
            let given: String = given.map(|(_, line)| *line).collect();
            (given, row)
        });
        let nodes: Vec<_> = nodes.map(|(given, row)| (format!("[node.n]\n{given}"), row)).collect();
        let nodes = nodes.iter().map(|(before, row)| (before.as_str(), *row));
        for (before, row) in arrays.chain(over_nodes).chain(nodes) {
            let [key, kind, _, example, meaning] = row[..] else { panic!("{row:?}") };
            assert!(!kind.is_empty() && !meaning.is_empty(), "{row:?}");
            let example = example.trim_matches('`');
            assert!(example.starts_with(&format!("{} = ", key.trim_matches('`'))), "{row:?}");
            assert_eq!(problems(&format!("{before}{example}")), [""; 0], "{before}{example}");
        }

        let examples: Vec<&str> = page.split("```toml\n").skip(1).collect();
        assert!(examples.len() >= 2, "{examples:?}");
        for example in examples {
            let example = example.split("```").next().unwrap();
            assert_eq!(problems(example), [""; 0], "{example}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_the_way_out() {
        for (text, expected) in [
            ("[array.a]\nmax = \"5Q\"", "2: array.a.max: \"5Q\": not a size; write bytes"),
            (
                "[array.a]\nmembers = 5",
                "2: array.a.members: must be a list of texts in quotes, and",
            ),
            (
                "[array.a]\nmax = \"1M@1:00-2:00=7\"",
                "2: array.a.max: max = 7 is 7 bytes a second; write 7M",
            ),
            (
                "[array.a]\nexports = \"ublk:1\"\n[array.b]\nexports = [\"ublk:1\"]",
                "4: array.b.exports: ublk:1 is an export of a in line 2; choose",
            ),
            ("[array.'a:b']", "1: array.a:b: a name cannot contain ':' here; use letters, digits,"),
            ("[array.-a]", "1: array.-a: a name cannot begin with '-'; use up to 32 letters"),
            ("[node.'a b']\nlisten = \"h:1\"\nmemory = true", "1: node.a b: a name cannot contain"),
            ("[array.a\n[array.b]\nx = 1", "1: : unclosed table; write ] there"),
        ] {
            let said = problems(text);
            assert_eq!(said.len(), 1, "{text}: {said:#?}");
            assert!(said[0].starts_with(expected), "{text}: {}", said[0]);
        }
    }

    #[test]
    fn what_is_wrong_with_one_does_not_concern_another() {
        let config = parse(Path::new("/f"), "[array.a]\nx = 1\n[array.b]\n");
        assert!(config.problem("a").is_some() && config.problem("b").is_none());
        let config = parse(Path::new("/f"), "[array.a]\n[array.'a.b']\nx = 1\n");
        assert!(config.problem("a").is_none() && config.problem("a.b").is_some());
        let config = parse(Path::new("/f"), "[array.a]\n[array.b\n");
        assert!(config.problem("a").is_some(), "nobody knows what the file says");
        let config = parse(Path::new("/f"), "[array.a]\nmax = 200\n");
        assert!(config.problem("a").is_none(), "a warning stops nothing");
        assert_eq!(config.warnings("a").count(), 1);
    }
}
