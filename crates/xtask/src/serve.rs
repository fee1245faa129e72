//! `cargo xtask serve`: the book in the browser, rebuilt on every change.

use crate::console::Activity;
use crate::project::Project;
use crate::server::{self, Answer};
use crate::{build, files, lint, mdbook, playground};
use anyhow::{Result, bail};
use clap::Args;
use mdbook_driver::config::Config;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The options of `serve`.
#[derive(Debug, Args)]
pub struct Options {
    /// Port to listen on
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Address to listen on; 0.0.0.0 shows the book to other devices in the network
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,

    /// Do not open the browser
    #[arg(long)]
    no_open: bool,
}

/// The time for which the files must lie still before the book is rebuilt: editors write a file in several steps.
const STILL: Duration = Duration::from_millis(250);

/// Serves the book until it is interrupted.
///
/// # Errors
///
/// If the port is taken, or mdBook fails before there is a book to show.
pub fn serve(project: &Project, options: &Options) -> Result<()> {
    let address = SocketAddr::new(options.host, options.port);
    let listener = listen(address)?;
    let watched = watched(project)?;
    let mut built = changes(&watched);
    let pages = project.target().join("serve");
    rebuild(project, &pages)?;
    let version = Arc::new(Version::now());
    let (shown, served) = (Arc::clone(&version), pages.clone());
    server::listen(listener, move |path, query| answer(&served, &shown, path, query));
    announce(address, !options.no_open);

    // The first time it may take a while, and the book can be read without.
    match playground::add_to(project, &pages) {
        Ok(()) => version.renew(),
        Err(error) => eprintln!("error: {error:#}"),
    }

    loop {
        thread::sleep(STILL);
        let now = changes(&watched);
        if now == built {
            continue;
        }
        thread::sleep(STILL);
        if changes(&watched) != now {
            continue;
        }
        built = now;
        let rebuilt =
            rebuild(project, &pages).and_then(|()| playground::add_to(project, &pages));
        match rebuilt {
            Ok(()) => version.renew(),
            Err(error) => eprintln!("error: {error:#}"),
        }
    }
}

/// Returns the time at which each of the watched files was written last. To read a file changes nothing here.
fn changes(watched: &[PathBuf]) -> BTreeMap<PathBuf, Option<SystemTime>> {
    let files = watched.iter().flat_map(|path| files::under(path));
    let modified = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    files.map(|file| (file.clone(), modified(&file))).collect()
}

/// The version of the book that is served, which a page asks for and waits on.
struct Version {
    number: Mutex<u128>,
    changed: Condvar,
}

impl Version {
    /// A number that no earlier run has given out.
    fn now() -> Self {
        Self { number: Mutex::new(Self::number()), changed: Condvar::new() }
    }

    fn number() -> u128 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos())
    }

    fn renew(&self) {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = Self::number();
        self.changed.notify_all();
    }

    /// The number, as soon as it is another than `known`, or after half a minute.
    fn other_than(&self, known: &str) -> String {
        let number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |number: &mut u128| number.to_string() == known;
        let patience = Duration::from_secs(30);
        let waited = self.changed.wait_timeout_while(number, patience, is_known);
        waited.unwrap_or_else(PoisonError::into_inner).0.to_string()
    }
}

/// The path at which a page asks for the version.
const LIVE_RELOAD: &str = "live-reload";

/// Loads the page again when its version is no longer the one that is served.
const SCRIPT: &str = r#"<script>
(async () => {
    for (;;) {
        try {
            const answer = await fetch('/live-reload?VERSION');
            if (answer.ok && await answer.text() !== 'VERSION') { location.reload(); return; }
        } catch {
            await new Promise(done => setTimeout(done, 1000));
        }
    }
})();
</script>
</body>"#;

/// The answer to a request: a file of the book, with the script in each page.
fn answer(pages: &Path, version: &Version, path: &str, query: &str) -> Answer {
    let text = |status, kind, text: String| Answer {
        status,
        kind,
        encoding: "identity",
        body: text.into_bytes().into(),
    };
    if path == LIVE_RELOAD {
        return text("200 OK", "text/plain", version.other_than(query));
    }
    let found = server::file(pages, path);
    let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
    let file = found.unwrap_or_else(|| pages.join("404.html"));
    let kind = server::kind(&file);
    let body = fs::read(&file).unwrap_or_default();
    if !kind.starts_with("text/html") {
        return Answer { status, kind, encoding: "identity", body: body.into() };
    }
    let script = SCRIPT.replace("VERSION", &version.other_than(""));
    let page = String::from_utf8_lossy(&body).replacen("</body>", &script, 1);
    text(status, kind, page)
}

/// Renders the book into `pages`. What the checks find in its sources is only said: it is being written.
fn rebuild(project: &Project, pages: &Path) -> Result<()> {
    let activity = Activity::begin("building the book");
    for finding in lint::sources(project.root())? {
        eprintln!("warning: {finding}");
    }
    mdbook::render(project, pages, None, None, true)?;
    build::complete(pages)?;
    activity.done("built the book");
    Ok(())
}

/// The book's sources, by `book.toml`, and that file.
fn watched(project: &Project) -> Result<Vec<PathBuf>> {
    let root = project.root();
    let config = Config::from_disk(root.join("book.toml"))?;
    let folders = config.build.extra_watch_dirs.iter().map(|folder| root.join(folder));
    let mut watched: Vec<_> =
        [project.chapters(), root.join("theme")].into_iter().chain(folders).collect();
    watched.retain(|folder| folder.is_dir());
    watched.push(root.join("book.toml"));
    Ok(watched)
}

/// The port, before anything is built: it may be in use.
fn listen(address: SocketAddr) -> Result<TcpListener> {
    // Some systems let two programs share a port when one listens on all addresses.
    let timeout = Duration::from_millis(200);
    if TcpStream::connect_timeout(&reachable(address), timeout).is_err() {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => (),
            Err(error) => bail!("{address} cannot be listened on: {error}"),
        }
    }
    let free = TcpListener::bind((address.ip(), 0))?.local_addr()?.port();
    bail!("port {} is already in use; choose another with --port {free}", address.port())
}

/// Returns the address at which to reach a server that listens on `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address
}

/// Says where the book is, and opens it.
fn announce(address: SocketAddr, open: bool) {
    let url = format!("http://{}", reachable(address));
    eprintln!("the book is at {url}; Ctrl-C stops it");
    if open && open::that(&url).is_err() {
        eprintln!("no browser could be opened; open {url} by hand");
    }
}
