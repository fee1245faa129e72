//! A server that sends a folder as GitHub Pages does, and remembers what it sent.

use flate2::{Compression, write::GzEncoder};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use tiny_http::{Header, Request, Response, Server};

/// A served folder; dropping it stops the server.
pub struct Site {
    server: Arc<Server>,
    sent: Arc<Mutex<Vec<Sent>>>,
    thread: Option<JoinHandle<()>>,
}

/// A file that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub name: String,
    /// Bytes of the body as it travelled, compressed if text.
    pub on_the_wire: usize,
    /// Bytes of the file.
    pub uncompressed: usize,
}

impl Site {
    /// Serves `folder` on a free port of this machine.
    pub fn serve(folder: &Path) -> Self {
        let server =
            Server::http("127.0.0.1:0").expect("a free port to serve the pages on");
        let server = Arc::new(server);
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut folder = Folder { path: folder.to_owned(), read: HashMap::new() };
        let (requests, log) = (Arc::clone(&server), Arc::clone(&sent));
        let thread = thread::spawn(move || {
            for request in requests.incoming_requests() {
                // Who hangs up early has lost nothing but the file.
                let _ = folder.answer(request, &log);
            }
        });
        Self { server, sent, thread: Some(thread) }
    }

    /// The address of a file.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.server.server_addr())
    }

    /// What was sent since this was asked last.
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut *lock(&self.sent))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The files, each read and compressed once.
struct Folder {
    path: PathBuf,
    read: HashMap<PathBuf, Arc<File>>,
}

struct File {
    body: Vec<u8>,
    uncompressed: usize,
    headers: Vec<Header>,
}

impl Folder {
    fn answer(
        &mut self,
        request: Request,
        log: &Mutex<Vec<Sent>>,
    ) -> std::io::Result<()> {
        let name = request.url().split(['?', '#']).next().unwrap_or_default();
        let name = name.trim_start_matches('/').to_owned();
        let Some(file) = self.file(&name) else {
            return request
                .respond(Response::from_string("not found").with_status_code(404));
        };
        let (on_the_wire, uncompressed) = (file.body.len(), file.uncompressed);
        lock(log).push(Sent { name, on_the_wire, uncompressed });
        let mut response = Response::from_data(file.body.as_slice());
        response = response.with_chunked_threshold(usize::MAX);
        for header in &file.headers {
            response.add_header(header.clone());
        }
        request.respond(response)
    }

    fn file(&mut self, name: &str) -> Option<Arc<File>> {
        let inside = |part| matches!(part, Component::Normal(_));
        let path = self.path.join(name);
        if !Path::new(name).components().all(inside) {
            return None;
        }
        if let Some(file) = self.read.get(&path) {
            return Some(Arc::clone(file));
        }
        let file = Arc::new(File::read(&path)?);
        self.read.insert(path, Arc::clone(&file));
        Some(file)
    }
}

impl File {
    fn read(path: &Path) -> Option<Self> {
        let body = fs::read(path).ok()?;
        let uncompressed = body.len();
        let (kind, text) = kind(path);
        let mut headers = vec![header("Content-Type", kind)];
        if !text {
            return Some(Self { body, uncompressed, headers });
        }
        headers.push(header("Content-Encoding", "gzip"));
        Some(Self { body: gzip(&body), uncompressed, headers })
    }
}

/// The media type of a file, and whether it is text, which travels compressed.
fn kind(path: &Path) -> (&'static str, bool) {
    match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" => ("text/html; charset=utf-8", true),
        "css" => ("text/css; charset=utf-8", true),
        "js" => ("application/javascript; charset=utf-8", true),
        "svg" => ("image/svg+xml", true),
        "json" => ("application/json; charset=utf-8", true),
        "txt" => ("text/plain; charset=utf-8", true),
        "woff2" => ("font/woff2", false),
        "png" => ("image/png", false),
        _ => ("application/octet-stream", false),
    }
}

fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("the headers are constants")
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder
        .write_all(body)
        .and_then(|()| encoder.finish())
        .expect("memory takes all bytes")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
