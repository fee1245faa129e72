//! `cargo xtask serve`: the book in the browser, rebuilt on every change.

use crate::console::Activity;
use crate::project::Project;
use crate::{build, lint, mdbook, playground};
use anyhow::{Context, Result, bail};
use axum::Router;
use clap::Args;
use mdbook_driver::config::Config;
use notify_debouncer_mini::{
    DebounceEventResult, DebouncedEvent, new_debouncer, notify::RecursiveMode,
};
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};
use tower_http::services::{ServeDir, ServeFile};
use tower_livereload::LiveReloadLayer;

/// What `serve` can be asked for.
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

/// How long a file must lie still before the book is rebuilt: editors write a file in several steps.
const STILL: Duration = Duration::from_millis(200);

/// Serves the book until it is interrupted.
///
/// # Errors
///
/// If the port is taken, or mdBook fails before there is a book to show.
pub fn serve(project: &Project, options: &Options) -> Result<()> {
    let address = SocketAddr::new(options.host, options.port);
    let listener = listen(address)?;
    // Changes are watched before the first build, so that none is missed.
    let (sender, changes) = mpsc::channel::<DebounceEventResult>();
    let mut watcher = new_debouncer(STILL, sender)?;
    for path in watched(project)? {
        watcher
            .watcher()
            .watch(&path, RecursiveMode::Recursive)
            .with_context(|| format!("{} cannot be watched", path.display()))?;
    }

    let pages = project.target().join("serve");
    let mut last = SystemTime::now();
    rebuild(project, &pages)?;
    let live_reload = LiveReloadLayer::new();
    let reloader = live_reload.reloader();
    let not_found = ServeFile::new(pages.join("404.html"));
    let files = ServeDir::new(pages.clone()).not_found_service(not_found);
    let site = Router::new().fallback_service(files).layer(live_reload);
    thread::spawn(move || {
        if let Err(error) = run(listener, site) {
            eprintln!("error: the pages cannot be served: {error:#}");
            std::process::exit(1);
        }
    });
    announce(address, !options.no_open);

    // The first time it may take a while, and the book can be read without.
    let figures_move = playground::can_be_built();
    match playground::add_to(project, &pages) {
        Ok(()) => reloader.reload(),
        Err(error) => eprintln!("error: {error:#}"),
    }

    for change in changes {
        let events = change.map_err(|error| eprintln!("warning: {error}"));
        // To read a file is an event, too, and a build reads them all.
        let changed = |event: &DebouncedEvent| is_newer(&event.path, last);
        if events.is_ok_and(|events| events.iter().any(changed)) {
            last = SystemTime::now();
            let rebuilt = rebuild(project, &pages).and_then(|()| {
                if figures_move { playground::add_to(project, &pages) } else { Ok(()) }
            });
            match rebuilt {
                Ok(()) => reloader.reload(),
                Err(error) => eprintln!("error: {error:#}"),
            }
        }
    }
    bail!("nothing watches the files any more")
}

/// Whether a file was written after a time, or is gone.
fn is_newer(file: &Path, than: SystemTime) -> bool {
    fs::metadata(file).and_then(|file| file.modified()).map_or(true, |time| time >= than)
}

/// Renders the book into `pages`. What the checks find in its sources is only said: it is being written.
fn rebuild(project: &Project, pages: &Path) -> Result<()> {
    let activity = Activity::begin("building the book");
    for finding in lint::sources(project.root())? {
        eprintln!("warning: {finding}");
    }
    mdbook::render(project, pages, None)?;
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

/// Where to reach a server that listens on `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address
}

/// Answers browsers for as long as the program runs.
fn run(listener: TcpListener, site: Router) -> Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        Ok(axum::serve(listener, site).await?)
    })
}

/// Says where the book is, and opens it.
fn announce(address: SocketAddr, open: bool) {
    let url = format!("http://{}", reachable(address));
    eprintln!("the book is at {url}; Ctrl-C stops it");
    if open && open::that(&url).is_err() {
        eprintln!("no browser could be opened; open {url} by hand");
    }
}
