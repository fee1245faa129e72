//! Chromium without a window, driven through its DevTools protocol.
//!
//! The protocol is JSON over a WebSocket: a call has a number and gets an answer with that number,
//! and between the answers come events. <https://chromedevtools.github.io/devtools-protocol>
//!
//! The events are kept as they come, so that no check misses a request or a warning. The libraries that were tried know the
//! protocol of one version and drop what a newer browser says in other words: `headless_chrome` 1.0.22 handed out one of
//! Chromium 156's five `requestWillBeSentExtraInfo` for a page of five requests, and said nothing of the others.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

/// The time that an answer may take, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The other options that it is started with: an address to speak with it, and an empty tab.
const FLAGS: &[&str] = &["--remote-debugging-port=0", "about:blank"];

/// The browser to test with, if one is installed.
pub fn find() -> Option<PathBuf> {
    xtask::browser::find().unwrap_or_else(|error| panic!("{error:#}"))
}

/// A running Chromium with a profile of its own; dropping it ends it.
pub struct Browser {
    process: Process,
    socket: WebSocket<TcpStream>,
    calls: u64,
    /// The events in the open tab.
    events: Vec<Value>,
}

/// The screen that a page is seen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    /// True if the system prefers dark colours.
    pub dark: bool,
    /// True if one points with a finger: nothing hovers, and scroll bars take no room.
    pub touch: bool,
}

/// A key, as the protocol knows it.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    name: &'static str,
    code: u32,
}

impl Key {
    pub const RIGHT: Self = Self { name: "ArrowRight", code: 39 };
    pub const HOME: Self = Self { name: "Home", code: 36 };
    pub const END: Self = Self { name: "End", code: 35 };
    pub const DOWN: Self = Self { name: "ArrowDown", code: 40 };
    pub const UP: Self = Self { name: "ArrowUp", code: 38 };
    pub const SLASH: Self = Self { name: "/", code: 191 };
    pub const TAB: Self = Self { name: "Tab", code: 9 };
    pub const ESCAPE: Self = Self { name: "Escape", code: 27 };
}

impl Browser {
    /// Starts `program`.
    pub fn start(program: PathBuf) -> Self {
        let (process, address) = Process::start(program);
        let host =
            address.trim_start_matches("ws://").split('/').next().unwrap_or_default();
        let stream = TcpStream::connect(host).expect("Chromium listens where it says");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        // A screenshot of a long page is one long message.
        let any_size =
            WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let (socket, _) =
            tungstenite::client::client_with_config(&address, stream, Some(any_size))
                .expect("Chromium speaks the DevTools protocol");
        // From now on short waits, between which to see whether patience is at an end.
        let wait = Some(Duration::from_millis(200));
        socket.get_ref().set_read_timeout(wait).expect("a timeout can be set");
        Self { process, socket, calls: 0, events: Vec::new() }
    }

    /// An empty tab that shares nothing with any before it: no cache, no cookies, no choices.
    pub fn open(&mut self, screen: Screen) -> Tab<'_> {
        self.events.clear();
        let context = text(
            &self.call(None, "Target.createBrowserContext", json!({})),
            "browserContextId",
        );
        let target = json!({ "url": "about:blank", "browserContextId": context });
        let target = text(&self.call(None, "Target.createTarget", target), "targetId");
        let attach = json!({ "targetId": target, "flatten": true });
        let session =
            text(&self.call(None, "Target.attachToTarget", attach), "sessionId");
        let mut tab = Tab { browser: self, context, session };
        for domain in ["Page", "Runtime", "Network", "Log", "Audits"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.call("Page.setLifecycleEventsEnabled", json!({ "enabled": true }));
        tab.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
        tab.use_screen(screen);
        tab
    }

    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.try_call(session, method, parameters)
            .unwrap_or_else(|error| panic!("Chromium, asked for {method}: {error}"))
    }

    fn try_call(
        &mut self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Result<Value, String> {
        let number = self.send(session, method, parameters)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut message = self.receive(deadline)?;
            if message["id"] != number {
                self.events.push(message);
            } else if message["error"].is_object() {
                return Err(message["error"]["message"].to_string());
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    fn send(
        &mut self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Result<u64, String> {
        self.calls += 1;
        let mut call =
            json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = session {
            call["sessionId"] = session.into();
        }
        self.socket
            .send(Message::text(call.to_string()))
            .map_err(|error| error.to_string())?;
        Ok(self.calls)
    }

    fn receive(&mut self, deadline: Instant) -> Result<Value, String> {
        while Instant::now() < deadline {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    return serde_json::from_str(&text)
                        .map_err(|error| error.to_string());
                }
                Ok(_) => {}
                Err(tungstenite::Error::Io(error))
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut
                    ) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(format!("no answer in {} s", PATIENCE.as_secs()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked to, it takes its children along; if it does not go, `Process` makes it.
        if self.send(None, "Browser.close", json!({})).is_ok() {
            self.process.wait(Duration::from_secs(5));
        }
    }
}

/// The program, and the folder that it keeps its profile in.
struct Process {
    child: Child,
    _profile: TempDir,
}

impl Process {
    /// Starts `program` and waits for the address at which it listens.
    fn start(program: PathBuf) -> (Self, String) {
        let profile = tempfile::tempdir().expect("a folder for Chromium's profile");
        let child = Command::new(&program)
            .args(xtask::browser::FLAGS)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{} cannot be started: {error}", program.display())
            });
        let mut process = Self { child, _profile: profile };
        let stderr = process.child.stderr.take().expect("the error output is piped");
        let (sender, lines) = mpsc::channel();
        // Reads to the end, for a full pipe would stop Chromium.
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let deadline = Instant::now() + PATIENCE;
        let mut said = String::new();
        while let Ok(line) =
            lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if let Some(address) = line.strip_prefix("DevTools listening on ") {
                return (process, address.trim().to_owned());
            }
            said += &line;
            said.push('\n');
        }
        panic!("{} did not start:\n{said}", program.display());
    }

    /// Returns whether it ends by itself in this time.
    fn wait(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tab; dropping it closes it and forgets what it stored.
pub struct Tab<'browser> {
    browser: &'browser mut Browser,
    context: String,
    session: String,
}

impl Tab<'_> {
    /// Turns to another screen, as when a window is resized.
    pub fn use_screen(&mut self, screen: Screen) {
        let metrics = json!({
            "width": screen.width,
            "height": screen.height,
            "deviceScaleFactor": 1,
            "mobile": screen.touch,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.call(
            "Emulation.setTouchEmulationEnabled",
            json!({ "enabled": screen.touch }),
        );
        let scheme = if screen.dark { "dark" } else { "light" };
        let scheme =
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", scheme);
    }

    /// Runs no script of any page.
    pub fn disable_scripts(&mut self) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    }

    /// Runs `script` in each page before anything of its own.
    pub fn run_first(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }));
    }

    /// Goes to `url` and waits until it has loaded.
    pub fn go(&mut self, url: &str) {
        let navigation = self.call("Page.navigate", json!({ "url": url }));
        assert!(navigation["errorText"].is_null(), "{url}: {}", navigation["errorText"]);
        let deadline = Instant::now() + PATIENCE;
        let loaded = |event: &Value| {
            event["method"] == "Page.lifecycleEvent"
                && event["params"]["name"] == "load"
                && event["params"]["loaderId"] == navigation["loaderId"]
        };
        while !self.browser.events.iter().any(loaded) {
            let message = self.browser.receive(deadline);
            self.browser
                .events
                .push(message.unwrap_or_else(|error| panic!("{url}: {error}")));
        }
    }

    /// The value of a JavaScript expression; if it is a promise, what that comes to.
    pub fn ask<T: DeserializeOwned>(&mut self, expression: &str) -> T {
        serde_json::from_value(self.evaluate(expression))
            .unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Runs JavaScript; if it comes to a promise, until that is kept.
    pub fn run(&mut self, script: &str) {
        self.evaluate(script);
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let evaluation = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", evaluation);
        let exception = &answer["exceptionDetails"];
        assert!(exception.is_null(), "{expression}: {exception}");
        answer["result"]["value"].take()
    }

    /// Presses and releases a key on what has the focus.
    pub fn press(&mut self, key: Key) {
        let Key { name, code } = key;
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Moves the pointer to a point of the window.
    pub fn point_at(&mut self, (x, y): (f64, f64)) {
        let event = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// Presses the left button at a point of the window.
    pub fn click(&mut self, (x, y): (f64, f64)) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Touches a point of the window with a finger.
    pub fn tap(&mut self, (x, y): (f64, f64)) {
        let touch = json!({ "type": "touchStart", "touchPoints": [{ "x": x, "y": y }] });
        self.call("Input.dispatchTouchEvent", touch);
        self.call(
            "Input.dispatchTouchEvent",
            json!({ "type": "touchEnd", "touchPoints": [] }),
        );
    }

    /// The whole page as a PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let page = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].take();
        let clip = json!({
            "x": 0, "y": 0, "width": page["width"], "height": page["height"], "scale": 1,
        });
        let capture =
            json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let image = text(&self.call("Page.captureScreenshot", capture), "data");
        BASE64_STANDARD.decode(image).expect("Chromium sends Base64")
    }

    /// Every event so far, oldest first: its name and what it says.
    pub fn events(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.browser
            .events
            .iter()
            .filter(|event| event["sessionId"] == self.session.as_str())
            .filter_map(|event| Some((event["method"].as_str()?, &event["params"])))
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.browser.call(Some(&self.session), method, parameters)
    }
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        let context = json!({ "browserContextId": self.context });
        // While a failure is being reported there is no second one.
        let _ = self.browser.send(None, "Target.disposeBrowserContext", context);
    }
}

fn text(answer: &Value, name: &str) -> String {
    answer[name]
        .as_str()
        .unwrap_or_else(|| panic!("Chromium gave no {name}: {answer}"))
        .to_owned()
}
