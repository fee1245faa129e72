//! A small server for the pages of the book: one reader at a time, and the browser of the tests.

use anyhow::{Result, anyhow};
use percent_encoding::percent_decode_str;
use std::net::TcpListener;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;
use tiny_http::{Header, Request, Response, Server};

/// The answer to a request for a file.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status, such as 200.
    pub status: u16,
    /// The media type.
    pub kind: &'static str,
    /// The encoding of the body: `identity` or `gzip`.
    pub encoding: &'static str,
    /// The body.
    pub body: Arc<[u8]>,
}

/// Answers requests in threads of their own, for as long as the program runs: one may wait for the next version of the book.
/// `answer` is given the path of a request, decoded and without its first slash, and the query behind the question mark.
///
/// # Errors
///
/// If the system gives the server no thread.
pub fn listen(
    listener: TcpListener,
    answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static,
) -> Result<()> {
    let server = Server::from_listener(listener, None).map_err(|error| anyhow!(error))?;
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for request in server.incoming_requests() {
            let answer = Arc::clone(&answer);
            // An error here is a browser that has closed the connection.
            thread::spawn(move || reply(request, &*answer));
        }
    });
    Ok(())
}

fn reply(
    request: Request,
    answer: &(dyn Fn(&str, &str) -> Answer + Send + Sync),
) -> std::io::Result<()> {
    let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
    let path = percent_decode_str(path.trim_start_matches('/')).decode_utf8_lossy();
    let Answer { status, kind, encoding, body } = answer(&path, query);
    let mut response = Response::from_data(&*body).with_status_code(status);
    for (name, value) in [
        ("Content-Type", kind),
        ("Content-Encoding", encoding),
        ("Cache-Control", "no-cache"),
    ] {
        response.add_header(Header::from_bytes(name, value).expect("ASCII"));
    }
    request.respond(response)
}

/// The file that a request for `path` in `folder` means. None if that lies outside of the folder, or does not exist.
#[must_use]
pub fn file(folder: &Path, path: &str) -> Option<PathBuf> {
    let is_inside = |part| matches!(part, Component::Normal(_));
    if !Path::new(path).components().all(is_inside) {
        return None;
    }
    let mut file = folder.join(path);
    if file.is_dir() {
        file.push("index.html");
    }
    file.is_file().then_some(file)
}

/// The media type of a file, by its name.
#[must_use]
pub fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "application/javascript; charset=utf-8",
        "wasm" => "application/wasm",
        "svg" => "image/svg+xml",
        "json" => "application/json; charset=utf-8",
        "txt" => "text/plain; charset=utf-8",
        "woff2" => "font/woff2",
        "png" => "image/png",
        "pdf" => "application/pdf",
        "epub" => "application/epub+zip",
        _ => "application/octet-stream",
    }
}
