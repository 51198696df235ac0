//! The page: status of arrays and nodes, and with a token, changes to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use braid_array::Refusal;
use braid_host::control::Client;
use braid_host::control::wire::{ControlStatus, Verb};
use braid_host::serve::ExportSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::board::Board;
use super::health::{Health, Summary};
use super::secret;
use super::seen::{node_of, within};
use super::sinks::Latest;
use crate::cmd::{launch, layout};
use crate::failure::Failure;
use crate::invocation::next_step;
use crate::output;
use crate::output::json as words;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
/// Files of the page: path, type and content.
const FILES: [(&str, &str, &str); 5] = [
    ("/", HTML, include_str!("web/page.html")),
    ("/page.css", CSS, include_str!("web/page.css")),
    ("/draw.js", JAVASCRIPT, include_str!("web/draw.js")),
    ("/map.js", JAVASCRIPT, include_str!("web/map.js")),
    ("/page.js", JAVASCRIPT, include_str!("web/page.js")),
];
/// Content policy: no content from other sites, and no embedding in their pages. The page draws its
/// icon itself, as a `data:` URL.
const POLICY: &str = "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
/// Largest request.
const QUESTION_BYTES: usize = 64 << 10;
/// Shortest token; shorter ones could be guessed.
const TOKEN_BYTES: usize = 16;

/// Sources of the page.
#[derive(Clone, Debug)]
pub(super) struct Site {
    run_dir: PathBuf,
    latest: Latest,
    board: Arc<Mutex<Board>>,
    /// Without one nothing can be done.
    token: Option<Arc<str>>,
}

/// A requested change of an array.
#[derive(Debug, Deserialize)]
struct Wish {
    array: String,
    #[serde(flatten)]
    verb: Verb,
}

/// A node that has members.
#[derive(Debug, Serialize)]
struct NodeRow<'a> {
    address: &'a str,
    members: Vec<Value>,
}

impl Site {
    pub(super) fn new(
        run_dir: &Path,
        token: Option<&Path>,
        latest: Latest,
        board: Arc<Mutex<Board>>,
    ) -> Result<Self, Failure> {
        let token = token.map(read_token).transpose()?;
        Ok(Self { run_dir: run_dir.to_owned(), latest, board, token })
    }

    pub(super) fn router(self) -> Router {
        let mut files = Router::new();
        for (path, kind, text) in FILES {
            files = files.route(path, get(move || async move { file(kind, text) }));
        }
        files
            // A browser asks for it, and complains of a refusal.
            .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
            .route("/api/state", get(state))
            .route("/api/plots", get(plots))
            .route("/api/map", get(map))
            .route("/api/do", post(carry_out))
            .fallback(|| async { refusal(StatusCode::NOT_FOUND, "there is no such page", "see /") })
            .layer(DefaultBodyLimit::max(QUESTION_BYTES))
            .with_state(self)
    }

    fn board<T>(&self, make: impl FnOnce(&Board) -> T) -> T {
        make(&self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the refusal for requests without the right token.
    fn stranger(&self, headers: &HeaderMap) -> Option<Response> {
        let Some(token) = &self.token else {
            let next = "start the monitor with --token FILE";
            return Some(refusal(StatusCode::FORBIDDEN, "this page is only for looking", next));
        };
        // A header that pages from elsewhere cannot send unasked.
        let sent = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let sent = sent.strip_prefix(b"Bearer ").unwrap_or_default();
        if same(sent, token.as_bytes()) {
            return None;
        }
        let next = "enter what is in the monitor's --token FILE";
        Some(refusal(StatusCode::UNAUTHORIZED, "that is not the token", next))
    }
}

/// Takes as long wherever they differ.
fn same(sent: &[u8], token: &[u8]) -> bool {
    let differs = sent.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    sent.len() == token.len() && differs == 0
}

fn read_token(path: &Path) -> Result<Arc<str>, Failure> {
    let make = "make one: (umask 077; openssl rand -hex 32 > FILE)";
    let token = secret::read(path, "the token", make)?;
    if token.len() < TOKEN_BYTES {
        let reason = format!("has less than {TOKEN_BYTES} characters");
        return Err(Failure::refused("monitor", path.display(), reason, make));
    }
    Ok(token.into())
}

fn respond(status: StatusCode, kind: &str, body: impl Into<Body>) -> Response {
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_SECURITY_POLICY, POLICY)
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::REFERRER_POLICY, "no-referrer")
        .header(header::CACHE_CONTROL, "no-store");
    response.body(body.into()).expect("constant headers")
}

fn file(kind: &str, text: &'static str) -> Response {
    respond(StatusCode::OK, kind, text)
}

fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => respond(status, "application/json", body),
        Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

fn refusal(status: StatusCode, reason: &str, next: &str) -> Response {
    answer(status, &json!({ "reason": reason, "next": next }))
}

async fn state(State(site): State<Site>) -> Response {
    let writable = site.token.is_some();
    let value = site.latest.with(|arrays| site.board(|board| state_json(arrays, board, writable)));
    answer(StatusCode::OK, &value)
}

/// Returns the data of the page, arrays in trouble first.
fn state_json(arrays: &[ControlStatus], board: &Board, writable: bool) -> Value {
    let mut sorted: Vec<&ControlStatus> = arrays.iter().collect();
    sorted.sort_by_key(|array| Health::of(&array.array));
    json!({
        "host": output::host_name(),
        "writable": writable,
        "summary": Summary::of(arrays, board.silent()),
        "arrays": sorted.into_iter().map(words::array).collect::<Vec<_>>(),
        "nodes": nodes(arrays),
        "silent": board.silent(),
        "events": board.events(),
    })
}

/// By address: which members of which arrays they have.
fn nodes(arrays: &[ControlStatus]) -> Vec<NodeRow<'_>> {
    let mut nodes: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (array, status) in arrays.iter().flat_map(|array| within(&array.name, &array.array)) {
        for member in &status.members {
            let Some(address) = node_of(&member.device) else { continue };
            let role = member.role;
            let of =
                json!({ "array": array, "role": role, "state": words::member_word(member.state) });
            nodes.entry(address).or_default().push(of);
        }
    }
    nodes.into_iter().map(|(address, members)| NodeRow { address, members }).collect()
}

async fn plots(State(site): State<Site>) -> Response {
    site.board(|board| answer(StatusCode::OK, &board.plots()))
}

#[derive(Debug, Deserialize)]
struct Which {
    array: String,
}

/// Where data and parity lie in an array, until the pattern repeats.
async fn map(State(site): State<Site>, Query(which): Query<Which>) -> Response {
    let map = site.latest.with(|arrays| {
        let mut all = arrays.iter().flat_map(|array| within(&array.name, &array.array));
        let (_, status) = all.find(|(name, _)| *name == which.array)?;
        layout::of_running(&status.superblock)
    });
    match map {
        Some(map) => answer(StatusCode::OK, &map),
        None => {
            let reason = "no array of that name runs, or it has no pattern";
            refusal(StatusCode::NOT_FOUND, reason, "see braid layout")
        }
    }
}

async fn carry_out(State(site): State<Site>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(response) = site.stranger(&headers) {
        return response;
    }
    let wish: Wish = match serde_json::from_slice(&body) {
        Ok(wish) => wish,
        Err(error) => {
            let reason = error.to_string();
            return refusal(StatusCode::BAD_REQUEST, &reason, "send what the page would send");
        }
    };
    let verb = match allowed(wish.verb) {
        Ok(verb) => verb,
        Err(Refusal { reason, next }) => {
            return refusal(StatusCode::FORBIDDEN, &reason, &next_step(&next));
        }
    };
    // The array may take its time.
    let done = tokio::task::spawn_blocking(move || {
        let mut client = Client::connect(&site.run_dir, &wish.array)?;
        client.call(verb).map(drop)
    });
    match done.await {
        Ok(Ok(())) => answer(StatusCode::OK, &json!({ "done": true })),
        Ok(Err(error)) => {
            let Refusal { reason, next } = error.into();
            refusal(StatusCode::CONFLICT, &reason, &next_step(&next))
        }
        Err(error) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            refusal(status, &error.to_string(), "see the monitor's stderr")
        }
    }
}

/// Largest integer that a browser writes exactly. The page sends it for no limit.
const BROWSER_MAX: u64 = (1 << 53) - 1;

/// Not everything that can be done with an array is done from the page.
fn allowed(mut verb: Verb) -> Result<Verb, Refusal> {
    if let Verb::SyncLimits { max_bytes_s: Some(max @ BROWSER_MAX..), .. } = &mut verb {
        *max = u64::MAX;
    }
    match &verb {
        Verb::Fail { force: false, .. }
        | Verb::Remove { .. }
        | Verb::Replace { .. }
        | Verb::Check
        | Verb::Repair
        | Verb::StopScrub
        | Verb::SyncLimits { .. }
        | Verb::Pause
        | Verb::Resume
        | Verb::RemoveExport { force: false, .. } => Ok(verb),
        Verb::Add { member, force: false, .. } => {
            check_whole(member)?;
            Ok(verb)
        }
        Verb::AddExport { export } => {
            let paths = ["nbd:unix:", "fuse:", "vhost-user:"];
            let mut paths = paths.iter().filter_map(|kind| export.strip_prefix(kind));
            paths.try_for_each(check_whole)?;
            let spec: ExportSpec = export.parse()?;
            launch::is_secure(&spec)?;
            Ok(Verb::AddExport { export: spec.to_string() })
        }
        _ => Err(Refusal::new("that is not done from here", "use the command braid")),
    }
}

/// Refuses relative paths: a browser has no working directory.
fn check_whole(path: &str) -> Result<(), Refusal> {
    if path.starts_with('/') || path.starts_with("node://") {
        return Ok(());
    }
    Err(Refusal::new(format!("{path:?} is not a whole path"), "write it from / on"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::monitor::health::testing::arrays;

    #[test]
    fn a_token_is_the_same_only_as_a_whole() {
        assert!(same(b"secret", b"secret"));
        for other in [&b""[..], b"secre", b"secrets", b"Secret", b"secreT"] {
            assert!(!same(other, b"secret"), "{other:?}");
        }
    }

    /// The words between these, in all scripts.
    fn between<'a>(start: &str, end: char) -> Vec<&'a str> {
        let scripts = FILES.iter().filter(|(_, kind, _)| *kind == JAVASCRIPT);
        let texts = scripts.flat_map(|(_, _, text)| text.split(start).skip(1));
        texts.filter_map(|text| text.split(end).next()).collect()
    }

    #[test]
    fn scripts_find_in_the_page_what_they_change() {
        let (_, _, page) = FILES[0];
        let ids = between("byId('", '\'');
        let classes = between("find('.", '\'');
        assert!(ids.len() > 20 && classes.len() > 15, "{ids:?} {classes:?}");
        for id in ids {
            assert!(page.contains(&format!("id=\"{id}\"")), "no element #{id}");
        }
        for class in classes {
            let class = class.split(' ').next().unwrap();
            let is_there = |kind: &str| kind.split(['"', ' ']).any(|word| word == class);
            assert!(page.split("class=\"").skip(1).any(is_there), "no element .{class}");
        }
        for (path, _, text) in FILES {
            let name_space = text.matches("'http://www.w3.org/2000/svg'").count();
            assert_eq!(
                text.matches("//").count() - text.matches("// ").count(),
                name_space,
                "{path}"
            );
            assert_eq!(path.len() > 1, page.contains(&format!("=\"{path}\"")), "{path}");
        }
    }

    #[test]
    fn arrays_in_trouble_come_first_and_all_are_counted() {
        let mut board = Board::default();
        board.look(0, &[], ["silent".to_owned()].into());
        let state = state_json(&arrays(), &board, false);
        let shown = state["arrays"].as_array().unwrap().iter();
        let names: Vec<_> = shown.map(|array| array["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["lost", "stuck", "lame", "checked", "calm"]);
        assert_eq!(state["summary"], json!({ "well": 2, "all": 6, "worst": "failed" }));
        let none = state_json(&[], &Board::default(), false);
        assert_eq!(none["summary"], json!({ "well": 0, "all": 0, "worst": null }));
    }

    #[test]
    fn no_limit_is_more_than_a_browser_can_count() {
        let max = |bytes: u64| {
            let text = format!(r#"{{"array":"a","verb":"sync-limits","max_bytes_s":{bytes}}}"#);
            match allowed(serde_json::from_str::<Wish>(&text).unwrap().verb) {
                Ok(Verb::SyncLimits { min_bytes_s: None, max_bytes_s, .. }) => max_bytes_s,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(max(1 << 40), Some(1 << 40));
        assert_eq!(max(9_007_199_254_740_991), Some(u64::MAX));
    }

    #[test]
    fn what_costs_data_is_not_done_from_the_page() {
        let wish = |text: &str| serde_json::from_str::<Wish>(text).unwrap().verb;
        for good in [
            r#"{"array":"a","verb":"check"}"#,
            r#"{"array":"a","verb":"fail","member":"/dev/x"}"#,
            r#"{"array":"a","verb":"sync-limits","min_bytes_s":null,"max_bytes_s":7}"#,
            r#"{"array":"a","verb":"add-export","export":"nbd:unix:/s,name=x,size=1G"}"#,
        ] {
            assert!(allowed(wish(good)).is_ok(), "{good}");
        }
        for bad in [
            r#"{"array":"a","verb":"stop","force":true}"#,
            r#"{"array":"a","verb":"read","offset":0,"length":9}"#,
            r#"{"array":"a","verb":"fail","member":"/dev/x","force":true}"#,
            r#"{"array":"a","verb":"add-export","export":"nbd:tcp:0.0.0.0:10809"}"#,
            r#"{"array":"a","verb":"add-export","export":"nbd:unix:s"}"#,
            r#"{"array":"a","verb":"add","member":"sdb","force":false}"#,
            r#"{"array":"a","verb":"add","member":"/dev/sdb","force":true}"#,
        ] {
            assert!(allowed(wish(bad)).is_err(), "{bad}");
        }
    }
}
