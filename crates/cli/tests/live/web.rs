//! The page of the monitor, as a browser shows it and as its questions are answered.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::{Lab, patience, skip, until};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A monitor with a page.
struct Monitor {
    child: Child,
    address: String,
}

impl Monitor {
    fn start(lab: &Lab, words: &[&str]) -> Self {
        let mut command = lab.braid();
        command.args(["monitor", "--web", "127.0.0.1:0"]).args(words).stdout(Stdio::piped());
        let mut child = command.spawn().expect("braid");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut said).expect("a line");
        let address = said.trim().strip_prefix("page at http://").expect("an address");
        let address = address.trim_end_matches('/').to_owned();
        // Nobody reads the rest, which must not stop it.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Self { child, address }
    }

    /// Status and body of an answer.
    fn ask(&self, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("a server");
        let (request, headers) = head.split_once('\n').unwrap_or((head, ""));
        let length = body.len();
        let more: String = headers.lines().map(|line| format!("{line}\r\n")).collect();
        let text = format!(
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\
             {more}\r\n{body}"
        );
        stream.write_all(text.as_bytes()).expect("a server");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer[9..12].parse().expect("a status");
        (status, answer)
    }

    fn state(&self) -> Value {
        let (_, answer) = self.ask("GET /api/state", "");
        serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
    }

    fn wish(&self, token: &str, wish: &Value) -> u16 {
        let head =
            format!("POST /api/do\nContent-Type: application/json\nAuthorization: Bearer {token}");
        self.ask(&head, &wish.to_string()).0
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn raid5(lab: &Lab) -> Vec<PathBuf> {
    let members = lab.members("m", 3, 16);
    lab.ok("create home --level 5 --raid-devices 3 --chunk 64K --assume-clean", &members);
    lab.ok("assemble home", &members);
    members
}

fn token(lab: &Lab) -> String {
    let path = lab.path("token");
    std::fs::write(&path, TOKEN).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

const TILE: &str = "[...document.querySelectorAll('article[data-name=home] .tile')]";

#[test]
fn a_member_that_fails_is_seen_on_a_desk_and_on_a_phone() {
    let Some(mut browser) = Browser::start() else {
        let test = "a_member_that_fails_is_seen_on_a_desk_and_on_a_phone";
        return skip(test, "chromium is not installed");
    };
    let lab = Lab::new();
    let members = raid5(&lab);
    let monitor = Monitor::start(&lab, &[]);
    for width in [1280, 390] {
        browser.open(&format!("http://{}/", monitor.address), (width, 900));
        until("tiles", || browser.is(&format!("{TILE}.length >= 3")));
        assert_eq!(browser.value("innerWidth"), width);
        let bad = format!("{TILE}.some((tile) => tile.classList.contains('bad'))");
        // It failed when the page was seen on a desk.
        let is_first = width == 1280;
        assert_eq!(browser.is(&bad), !is_first, "at {width}");
        if is_first {
            let begun = Instant::now();
            lab.ok("fail home", &members[..1]);
            until("the page shows it", || browser.is(&bad));
            // Two seconds of a machine with nothing else to do.
            assert!(begun.elapsed() < patience() / 30, "took {:?}", begun.elapsed());
            let said = "document.querySelector('.state').textContent.includes('degraded')";
            assert!(browser.is(said));
            let told = "document.querySelector('#events').textContent.includes('Fail home')";
            until("an event", || browser.is(told));
        }
        // By keyboard alone: the stripe map opens, and shows where parity lies.
        browser.value("document.querySelector('summary').focus()");
        browser.press("Enter", "\r");
        until("the map", || {
            browser.is("document.querySelectorAll('.stripes td.parity').length === 3")
        });
        assert_eq!(browser.value("document.querySelectorAll('.stripes td.lost').length"), 3);
        let quiet = "document.querySelector('.plots').textContent.startsWith('No reads')";
        until("no plots, as nothing has moved", || browser.is(quiet));
        assert_eq!(browser.value("document.querySelectorAll('.plot').length"), 0);
        // Nothing is told twice of the lost member.
        assert_eq!(browser.value(&format!("{TILE}.length")), 3);
        let scroll = browser.value("document.documentElement.scrollWidth");
        assert!(scroll.as_u64() <= Some(width.into()), "{width}: {scroll} wide");
        let small = "[...document.querySelectorAll('article p, article li')]\
                     .filter((e) => e.checkVisibility())\
                     .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).length";
        assert_eq!(browser.value(small), 0, "something is cut off at {width}");
        assert!(browser.is("document.querySelector('#unlock').hidden"), "it is only for looking");
    }
    assert_eq!(browser.errors, [] as [String; 0]);
    lab.ok("stop home", &[]);
    until("it is gone", || browser.is("!document.querySelector('#none').hidden"));
}

/// Shows the page with a failed array, one that has lost a member, and a check, instead of the
/// state of the monitor, from which the rest is taken.
const TROUBLE: &str = r#"(async () => {
  const state = await (await fetch('/api/state')).json();
  const [home] = state.arrays;
  const array = (name, words, members, more) => ({ ...home, name, state: words, members, ...more });
  const lost = (at) => home.members.flatMap((member) => (member.role !== at ? [member] : [
    { ...member, role: null, state: ['faulty'], errors: 3 },
    { ...member, number: null, device: null, state: ['missing'] }]));
  const last_check =
    { at: '2026-11-28T01:09:00Z', kind: 'check', mismatched_sectors: 48, complete: true };
  state.arrays = [
    array('broken', ['failed'], lost(0)),
    array('lame', ['clean', 'degraded'], lost(1),
      { may_fail: 'one more', next: 'braid add', ids: ['BRAID-104', 'BRAID-202'] }),
    array('home', home.state, home.members, { mismatches: 48, last_check }),
  ];
  state.summary = { well: 1, all: 3, worst: 'failed' };
  state.events = Array.from({ length: 10 }, (_, at) => (
    { time: `2026-11-28T01:1${9 - at}:00Z`, event: 'Fail', array: 'lame', member: `/dev/${at}` }));
  const time = Array.from({ length: 60 }, (_, at) => 1795914540 + at * 30);
  const none = time.map(() => 0);
  const plots = { time, bytes_per_s: none, errors: none, slow_ms: none, failed: none,
    read_bytes_s: time.map((_, at) => at * 50000), write_bytes_s: none,
    read_us: time.map((_, at) => 900 + at), write_us: none, slow_us: time.map(() => 4096) };
  const answers = { '/api/state': state, '/api/plots': { home: plots } };
  const real = window.fetch;
  window.fetch = async (path) =>
    (answers[path] ? { ok: true, json: async () => answers[path] } : real(path));
  await updatePlots();
  await update();
})()"#;

#[test]
fn trouble_comes_first_and_everything_fits_on_a_desk_and_on_a_phone() {
    let Some(mut browser) = Browser::start() else {
        let test = "trouble_comes_first_and_everything_fits_on_a_desk_and_on_a_phone";
        return skip(test, "chromium is not installed");
    };
    let lab = Lab::new();
    raid5(&lab);
    let monitor = Monitor::start(&lab, &[]);
    for width in [1280, 390] {
        browser.open(&format!("http://{}/", monitor.address), (width, 900));
        until("tiles", || browser.is(&format!("{TILE}.length === 3")));
        assert_eq!(browser.value("document.title.split(' · ')[0]"), "1 of 1 well");
        browser.value(TROUBLE);
        let texts = |browser: &mut Browser, of: &str| {
            let all = format!("[...document.querySelectorAll('{of}')]");
            browser.value(&format!("{all}.map((e) => e.textContent)"))
        };
        assert_eq!(texts(&mut browser, "article .name"), json!(["broken", "lame", "home"]));
        assert_eq!(texts(&mut browser, "#summary"), json!(["1 of 3 well"]));
        assert_eq!(browser.value("document.title.split(' · ')[0]"), "1 of 3 well");
        let icon = browser.value("decodeURIComponent(document.querySelector('#icon').href)");
        assert!(icon.as_str().is_some_and(|icon| icon.contains("#c0272d")), "{icon}");
        for name in ["broken", "lame"] {
            let of = format!("[data-name={name}] .tile");
            assert_eq!(browser.value(&format!("document.querySelectorAll('{of}').length")), 3);
            let bad = texts(&mut browser, &format!("{of}.bad"));
            let role = if name == "broken" { "0: " } else { "1: " };
            let bad: Vec<_> = bad.as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert!(bad.len() == 1 && bad[0].starts_with(role), "{bad:?}");
            assert!(bad[0].ends_with("faulty, 3 errors"), "{bad:?}");
        }
        // The time is that of the browser.
        let at = browser.value("moment(new Date('2026-11-28T01:09:00Z'))");
        let at = at.as_str().expect("a time");
        let checked = [format!("last check {at}: 48 sectors differ; next: braid repair home")];
        assert_eq!(texts(&mut browser, ".checked:not(:empty)"), json!(checked));
        let outlook = json!(["one more; next: braid add"]);
        assert_eq!(texts(&mut browser, "[data-name=lame] .outlook"), outlook);
        let see = json!(["see: braid help BRAID-104 BRAID-202"]);
        assert_eq!(texts(&mut browser, ".see:not(:empty)"), see);
        let events = "[...document.querySelectorAll('#events li')].filter((line) => \
                      getComputedStyle(line).listStyleType === 'none' && line.scrollWidth <= \
                      line.clientWidth).length";
        assert_eq!(browser.value(events), 10, "no numbers that would be cut off");
        assert_eq!(texts(&mut browser, "figcaption").as_array().map(Vec::len), Some(2));
        assert_eq!(texts(&mut browser, ".y:first-child span").as_array().map(Vec::len), Some(6));
        let axis = texts(&mut browser, "figure:first-child .y span");
        assert_eq!(axis, json!(["4 MiB/s", "2 MiB/s", "0 B/s"]));
        assert_eq!(texts(&mut browser, "figure:first-child .x span")[1], "last 30 min");
        browser.value("document.querySelector('[data-name=home] summary').click()");
        let legend = "[...document.querySelectorAll('[data-name=home] .cells li')]\
                      .filter((line) => line.checkVisibility()).map((line) => line.textContent)";
        let expected = json!(["Ddata", "Pparity", "on a lost member", "being rebuilt"]);
        until("a legend", || browser.value(legend) == expected);
        let wide = "[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility())\
                    .filter((e) => !e.closest('.scroll'))\
                    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)\
                    .map((e) => e.outerHTML)";
        assert_eq!(browser.value(wide), json!([]), "something is cut off at {width}");
    }
    assert_eq!(browser.errors, [] as [String; 0]);
}

#[test]
fn with_the_token_a_member_is_failed_from_the_page() {
    let Some(mut browser) = Browser::start() else {
        let test = "with_the_token_a_member_is_failed_from_the_page";
        return skip(test, "chromium is not installed");
    };
    let lab = Lab::new();
    raid5(&lab);
    let monitor = Monitor::start(&lab, &["--token", &token(&lab)]);
    browser.open(&format!("http://{}/", monitor.address), (1280, 900));
    let unlock = "document.querySelector('#unlock')?.hidden === false";
    until("a place for the token", || browser.is(unlock));
    assert_eq!(browser.value("document.querySelectorAll('.tile button').length"), 0);
    browser.value("document.querySelector('#token').focus()");
    browser.insert(TOKEN);
    browser.press("Enter", "\r");
    until("buttons", || browser.is("document.querySelectorAll('.tile button').length === 6"));
    // What loses data or redundancy looks different from the rest.
    let dangerous = "[...document.querySelectorAll('button.danger')]\
                     .map((button) => button.textContent).join()";
    assert_eq!(browser.value(dangerous), "Fail,Fail,Fail,Repair");
    // Limits in force stand in their fields, and those that are cleared end.
    let limits =
        "['min', 'max'].map((name) => document.querySelector(`[name=${name}]`).value).join()";
    assert_eq!(browser.value(limits), "10,");
    let limit = "document.querySelector('[name=max]').value = 'MAX'; \
                 document.querySelector('[data-verb=sync-limits]').click()";
    let max = || monitor.state()["arrays"][0]["sync"]["max_bytes_per_s"].clone();
    browser.value(&limit.replace("MAX", "64.5"));
    until("a limit", || max() == 67_633_152);
    until("it is shown", || {
        browser.is("document.querySelector('[name=max]').defaultValue === '64.5'")
    });
    browser.value(&limit.replace("MAX", ""));
    until("no limit", || max().is_null());
    assert_eq!(monitor.state()["arrays"][0]["sync"]["min_bytes_per_s"], 10 << 20, "left alone");
    // Who is asked says yes.
    browser.value("window.confirm = (question) => { window.asked = question; return true; }");
    browser.value("document.querySelector('.tile button.danger').click()");
    let question = browser.value("window.asked");
    let first = lab.path("m0").display().to_string();
    let question = question.as_str().expect("a question");
    assert!(question.starts_with(&format!("Fail {first} of array home?")), "{question}");
    until("a bad tile", || {
        browser.is(&format!("{TILE}.some((tile) => tile.classList.contains('bad'))"))
    });
    browser.value("document.querySelector('[data-verb=check]').click()");
    until("an answer", || {
        browser.is("document.querySelector('#news').textContent !== ''")
            || monitor.state()["events"].to_string().contains("RebuildStarted")
    });
    let socket = lab.path("s").display().to_string();
    let export = format!(
        "document.querySelector('[name=export]').value = 'nbd:unix:{socket},name=vm,size=1M'"
    );
    browser.value(&format!("{export}; document.querySelector('[data-verb=add-export]').click()"));
    until("the export", || {
        browser.is("document.querySelector('.exports').textContent.includes('name=vm')")
    });
    assert!(lab.path("s").exists());
    let wrong = browser.errors.iter().filter(|error| !error.contains("409")).count();
    assert_eq!(wrong, 0, "{:?}", browser.errors);
}

#[test]
fn nothing_is_done_without_the_token() {
    let lab = Lab::new();
    let members = raid5(&lab);
    let token = token(&lab);
    let fail = json!({ "array": "home", "verb": "fail", "member": members[0] });
    let closed = Monitor::start(&lab, &[]);
    assert_eq!(closed.wish(TOKEN, &fail), 403, "it is only for looking");
    let open = Monitor::start(&lab, &["--token", &token]);
    assert_eq!(open.wish("", &fail), 401);
    assert_eq!(open.wish("wrong", &fail), 401);
    assert_eq!(open.ask("POST /api/do", &fail.to_string()).0, 401);
    assert_eq!(open.ask("GET /api/do", "").0, 405);
    let stop = json!({ "array": "home", "verb": "stop", "force": true });
    assert_eq!(open.wish(TOKEN, &stop), 403, "that is not done from here");
    let network = json!({ "array": "home", "verb": "add-export", "export": "nbd:tcp:0.0.0.0:0" });
    assert_eq!(open.wish(TOKEN, &network), 403, "everybody could write to it");
    assert_eq!(open.wish(TOKEN, &json!({ "array": "home" })), 400);
    let elsewhere = json!({ "array": "gone", "verb": "check" });
    assert_eq!(open.wish(TOKEN, &elsewhere), 409);
    until("a look", || open.state()["arrays"][0]["name"] == "home");
    assert_eq!(open.state()["arrays"][0]["state"], json!(["clean"]), "nothing has happened");
    assert_eq!(open.wish(TOKEN, &fail), 200);
    until("it has failed", || open.state()["arrays"][0]["state"] == json!(["clean", "degraded"]));
    let (status, page) = open.ask("GET /", "");
    assert_eq!(status, 200);
    assert!(page.to_lowercase().contains("content-security-policy: default-src 'self'"), "{page}");
    assert!(!page.contains("http://") && !page.contains("https://"), "it works offline");
    assert_eq!(open.ask("GET /../etc/passwd", "").0, 404);
    assert_eq!(open.ask("GET /api/map?array=none", "").0, 404);
}

#[test]
fn a_token_that_will_not_do_is_refused() {
    let lab = Lab::new();
    let path = lab.path("token");
    let said = |lab: &Lab| {
        let words = format!("monitor --web 127.0.0.1:0 --token {}", path.display());
        lab.refused(1, &words, &[], &[])
    };
    assert!(said(&lab).contains("no such file or directory; make one: "));
    std::fs::write(&path, "short").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(said(&lab).contains("less than 16 characters"));
    std::fs::write(&path, TOKEN).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(said(&lab).contains("others can read the token; chmod 600"));
}
