//! A server that sends a folder as GitHub Pages does, and remembers what it sent.

use flate2::{Compression, write::GzEncoder};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use xtask::server::{self, Answer};

/// A served folder.
pub struct Site {
    address: SocketAddr,
    folder: Arc<Folder>,
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
        server::listen(listener, move |path, _| served.answer(path));
        Self { address, folder }
    }

    /// The address of a file.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Returns what was sent since this was asked last.
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(
            &mut *self.folder.sent.lock().unwrap_or_else(PoisonError::into_inner),
        )
    }
}

/// The files, each read and compressed once.
#[derive(Default)]
struct Folder {
    path: PathBuf,
    files: Mutex<HashMap<String, File>>,
    sent: Mutex<Vec<Sent>>,
}

/// A file as it travels, and how many bytes it has.
type File = (Answer, usize);

impl Folder {
    fn answer(&self, name: &str) -> Answer {
        let Some((answer, uncompressed)) = self.file(name) else {
            let (kind, encoding) = ("text/plain", "identity");
            return Answer {
                status: "404 Not Found",
                kind,
                encoding,
                body: Arc::new([]),
            };
        };
        let on_the_wire = answer.body.len();
        let sent = Sent { name: name.to_owned(), on_the_wire, uncompressed };
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
        answer
    }

    fn file(&self, name: &str) -> Option<File> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if !files.contains_key(name) {
            files.insert(name.to_owned(), read(&server::file(&self.path, name)?)?);
        }
        files.get(name).cloned()
    }
}

fn read(path: &Path) -> Option<File> {
    let body = fs::read(path).ok()?;
    let uncompressed = body.len();
    let kind = server::kind(path);
    // GitHub compresses WebAssembly, too.
    let is_compressed = ["text/", "application/", "image/svg"]
        .iter()
        .any(|start| kind.starts_with(start))
        && kind != "application/octet-stream";
    let (encoding, body) =
        if is_compressed { ("gzip", gzip(&body)) } else { ("identity", body) };
    Some((Answer { status: "200 OK", kind, encoding, body: body.into() }, uncompressed))
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder
        .write_all(body)
        .and_then(|()| encoder.finish())
        .expect("memory takes all bytes")
}
