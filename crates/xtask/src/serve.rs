//! `cargo xtask serve`: the book in the browser, rebuilt on every change.

use crate::console::Activity;
use crate::project::Project;
use crate::server::{self, Answer};
use crate::{build, files, lint, mdbook, playground};
use anyhow::{Result, bail};
use clap::Args;
use fs_err as fs;
use mdbook_driver::config::Config;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::mem;
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
    // The pages of one folder are shown while the next are made in the other. The port is ours alone, so they are, too.
    let folder = project.target().join("serve").join(address.port().to_string());
    let [mut shown, mut next] = ["one", "other"].map(|name| folder.join(name));
    rebuild(project, &shown)?;
    let version = Arc::new(Version::of(&shown));
    let served = Arc::clone(&version);
    server::listen(listener, move |path, query| answer(&served, path, query));
    announce(address, !options.no_open);

    // The first time it may take a while, and the book can be read without.
    match playground::add_to(project, &shown) {
        Ok(()) => version.show(&shown),
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
            rebuild(project, &next).and_then(|()| playground::add_to(project, &next));
        match rebuilt {
            Ok(()) => {
                mem::swap(&mut shown, &mut next);
                version.show(&shown);
            }
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

/// The version of the book that is served, which a page asks for and waits on: its folder, and a number that no earlier version had.
struct Version {
    current: Mutex<(PathBuf, String)>,
    changed: Condvar,
}

impl Version {
    fn of(pages: &Path) -> Self {
        Self { current: Mutex::new(Self::numbered(pages)), changed: Condvar::new() }
    }

    fn numbered(pages: &Path) -> (PathBuf, String) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        (pages.to_owned(), time.unwrap_or_default().as_nanos().to_string())
    }

    fn show(&self, pages: &Path) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) =
            Self::numbered(pages);
        self.changed.notify_all();
    }

    /// The folder and the number, as soon as that is another than `known`, or after half a minute.
    fn other_than(&self, known: &str) -> (PathBuf, String) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = Duration::from_secs(30);
        let waited =
            self.changed.wait_timeout_while(current, patience, |it| it.1 == known);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
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
fn answer(version: &Version, path: &str, query: &str) -> Answer {
    let text = |status, kind, text: String| Answer {
        status,
        kind,
        encoding: "identity",
        body: text.into_bytes().into(),
    };
    if path == LIVE_RELOAD {
        return text("200 OK", "text/plain", version.other_than(query).1);
    }
    let (pages, number) = version.other_than("");
    let found = server::file(&pages, path);
    let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
    let file = found.unwrap_or_else(|| pages.join("404.html"));
    let kind = server::kind(&file);
    let body = fs::read(&file).unwrap_or_default();
    if !kind.starts_with("text/html") {
        return Answer { status, kind, encoding: "identity", body: body.into() };
    }
    let script = SCRIPT.replace("VERSION", &number);
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
