//! A server that sends a folder as GitHub Pages does, and remembers what it sent.

use flate2::{Compression, write::GzEncoder};
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A served folder; dropping it stops the server.
pub struct Site {
    address: SocketAddr,
    folder: Arc<Folder>,
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
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("the port has a number");
        let folder = Arc::new(Folder { path: folder.to_owned(), ..Folder::default() });
        let served = Arc::clone(&folder);
        let thread = thread::spawn(move || served.listen(&listener));
        Self { address, folder, thread: Some(thread) }
    }

    /// The address of a file.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// What was sent since this was asked last.
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(
            &mut *self.folder.sent.lock().unwrap_or_else(PoisonError::into_inner),
        )
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.folder.closed.store(true, Ordering::Release);
        // A last visitor, so that the server looks up and sees that it is closed.
        if TcpStream::connect(self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// The files, each read and compressed once.
#[derive(Default)]
struct Folder {
    path: PathBuf,
    files: Mutex<HashMap<String, Arc<File>>>,
    sent: Mutex<Vec<Sent>>,
    closed: AtomicBool,
}

impl Folder {
    /// Answers each connection in a thread of its own: a browser opens some long before it asks.
    fn listen(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.closed.load(Ordering::Acquire) {
                return;
            }
            let folder = Arc::clone(&self);
            // Who hangs up early has lost nothing but the file.
            thread::spawn(move || folder.answer(stream));
        }
    }

    /// Answers one request, then hangs up.
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        for line in lines {
            if line?.is_empty() {
                break;
            }
        }
        let target = request.split(' ').nth(1).unwrap_or_default();
        let name = target.split('?').next().unwrap_or_default().trim_start_matches('/');
        let Some(file) = self.file(name) else {
            return stream
                .write_all(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n");
        };
        let (on_the_wire, uncompressed) = (file.body.len(), file.uncompressed);
        let sent = Sent { name: name.to_owned(), on_the_wire, uncompressed };
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
        let File { kind, encoding, body, .. } = &*file;
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: {encoding}\r\n\
             Content-Length: {on_the_wire}\r\nConnection: close\r\n\r\n"
        )?;
        stream.write_all(body)
    }

    fn file(&self, name: &str) -> Option<Arc<File>> {
        let inside = |part| matches!(part, Component::Normal(_));
        if !Path::new(name).components().all(inside) {
            return None;
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if !files.contains_key(name) {
            files.insert(name.to_owned(), Arc::new(File::read(&self.path.join(name))?));
        }
        files.get(name).cloned()
    }
}

/// A file as it travels.
struct File {
    body: Vec<u8>,
    uncompressed: usize,
    kind: &'static str,
    encoding: &'static str,
}

impl File {
    fn read(path: &Path) -> Option<Self> {
        let body = fs::read(path).ok()?;
        let uncompressed = body.len();
        let (kind, text) = kind(path);
        Some(if text {
            Self { body: gzip(&body), uncompressed, kind, encoding: "gzip" }
        } else {
            Self { body, uncompressed, kind, encoding: "identity" }
        })
    }
}

/// The media type of a file, and whether it travels compressed.
fn kind(path: &Path) -> (&'static str, bool) {
    match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" => ("text/html; charset=utf-8", true),
        "css" => ("text/css; charset=utf-8", true),
        "wasm" => ("application/wasm", true), // no text, but GitHub compresses it, too
        "js" => ("application/javascript; charset=utf-8", true),
        "svg" => ("image/svg+xml", true),
        "json" => ("application/json; charset=utf-8", true),
        "txt" => ("text/plain; charset=utf-8", true),
        "woff2" => ("font/woff2", false),
        "png" => ("image/png", false),
        _ => ("application/octet-stream", false),
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder
        .write_all(body)
        .and_then(|()| encoder.finish())
        .expect("memory takes all bytes")
}
