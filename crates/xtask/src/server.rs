//! A small server for the pages of the book: one reader at a time, and the browser of the tests.

use percent_encoding::percent_decode_str;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The answer to a request for a file.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status line behind the version, such as `200 OK`.
    pub status: &'static str,
    /// The media type.
    pub kind: &'static str,
    /// The encoding of the body: `identity` or `gzip`.
    pub encoding: &'static str,
    /// The body.
    pub body: Arc<[u8]>,
}

/// Answers requests in threads of their own, for as long as the program runs: a browser opens some connections long before it asks.
/// `answer` is given the path of a request, decoded and without its first slash, and the query behind the question mark.
pub fn listen(
    listener: TcpListener,
    answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static,
) {
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // An error here is a browser that has closed the connection.
            thread::spawn(move || reply(stream, &*answer));
        }
    });
}

/// Answers one request, then closes the connection.
fn reply(
    mut stream: TcpStream,
    answer: &(dyn Fn(&str, &str) -> Answer + Send + Sync),
) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let target = request.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = percent_decode_str(path.trim_start_matches('/')).decode_utf8_lossy();
    let Answer { status, kind, encoding, body } = answer(&path, query);
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\
         Cache-Control: no-cache\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)
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
