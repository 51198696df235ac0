//! The mistakes, by the part of the file that they are in.

/// A file with one mistake. `%M0` and `%M1` are the members of the mirror `a`, `%O0` and so on of
/// the mirror `b`, `%C0` of `c` of level 5, and `%D0` of `d`, which lacks role 2.
pub(super) struct Mistake {
    pub(super) text: &'static str,
    /// Line, column where it is known, and key.
    pub(super) at: &'static str,
    pub(super) reason: &'static str,
    pub(super) next: &'static str,
    /// Set if `braid up` refuses by the same line.
    pub(super) stops: bool,
    pub(super) cure: Cure,
}

pub(super) enum Cure {
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

pub(super) const SYNTAX: &[Mistake] = &[
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

pub(super) const TABLES: &[Mistake] = &[
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

pub(super) const KEYS: &[Mistake] = &[
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

pub(super) const EXPORTS: &[Mistake] = &[
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

pub(super) const MEMBERS: &[Mistake] = &[
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

pub(super) const NODES: &[Mistake] = &[
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
