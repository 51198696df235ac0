//! A headless Chromium, driven over a pipe by its DevTools protocol: messages as JSON, each ended
//! by a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    stdin: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    next: u64,
    /// Errors on the console.
    pub(crate) errors: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None` when there is none.
    pub(crate) fn start() -> Option<Self> {
        let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
        let browser = BROWSERS.into_iter().find(is_there)?;
        let profile = tempfile::tempdir().expect("a directory");
        // It reads from descriptor 3 and writes to 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                r#"exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#,
                "sh",
                browser,
            ])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in stdout.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let errors = Vec::new();
        let mut own =
            Self { child, stdin, messages, session: None, next: 0, errors, _profile: profile };
        let target = own.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = own.call("Target.attachToTarget", target);
        own.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            own.call(domain, json!({}));
        }
        Some(own)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.stdin.write_all(&bytes).expect("a browser");
        loop {
            let mut message = self.messages.recv_timeout(PATIENCE).expect("an answer in time");
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        let bad = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => params["type"] == "error",
            Some("Log.entryAdded") => params["entry"]["level"] == "error",
            _ => false,
        };
        if bad {
            self.errors.push(params.to_string());
        }
    }

    /// Shows a page on a screen of this size.
    pub(crate) fn open(&mut self, url: &str, (width, height): (u32, u32)) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", screen);
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
            "userGesture": true,
        });
        let mut result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Returns whether the expression is true in the page.
    pub(crate) fn is(&mut self, expression: &str) -> bool {
        self.value(&format!("!!({expression})")) == true
    }

    /// A key, as from a keyboard.
    pub(crate) fn press(&mut self, key: &str, text: &str) {
        let code = if key == "Enter" { 13 } else { 9 };
        let down = json!({
            "type": if text.is_empty() { "rawKeyDown" } else { "keyDown" },
            "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code,
        });
        self.call("Input.dispatchKeyEvent", down);
        let up = json!({ "type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Types where the focus is.
    pub(crate) fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
