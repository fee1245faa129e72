//! `cargo xtask serve`: the book in the browser, rebuilt on every change.

use crate::lint;
use crate::project::Project;
use crate::tools;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

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

/// Serves the book until it is interrupted.
///
/// # Errors
///
/// If the port is taken, or mdBook is missing or fails.
pub fn serve(project: &Project, options: &Options) -> Result<()> {
    let address = SocketAddr::new(options.host, options.port);
    check_port(address)?;
    for finding in lint::sources(project.root())? {
        eprintln!("warning: {finding}");
    }
    let child = tools::mdbook(project)?
        .arg("serve")
        .args(["--hostname", &host_in_url(options.host)])
        .args(["--port", &options.port.to_string()])
        // Pages with live reload are not the book: they get a folder of their own.
        .arg("--dest-dir")
        .arg(project.target().join("serve"))
        .spawn()
        .context("mdbook could not be started")?;
    let child = Arc::new(Mutex::new(child));
    stop_with_us(&child)?;
    let open = !options.no_open;
    thread::spawn(move || announce(address, open));
    wait(&child)
}

/// Whether something else answers on `address` is found out before anything is built.
fn check_port(address: SocketAddr) -> Result<()> {
    let taken = match TcpListener::bind(address).map(drop) {
        // Some systems let two programs share a port when one listens on all addresses.
        Ok(()) => answers(address),
        Err(error) if error.kind() == ErrorKind::AddrInUse => true,
        Err(error) => bail!("{address} cannot be listened on: {error}"),
    };
    let port = address.port();
    match next_free_port(address) {
        _ if !taken => Ok(()),
        Some(free) => {
            bail!("port {port} is already in use; choose another with --port {free}")
        }
        None => bail!("port {port} is already in use"),
    }
}

fn next_free_port(address: SocketAddr) -> Option<u16> {
    let free = |port: &u16| TcpListener::bind((address.ip(), *port)).is_ok();
    (address.port()..u16::MAX).map(|port| port + 1).find(free)
}

/// Where to reach a server that listens on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
    } else {
        address
    }
}

fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&reachable(address), Duration::from_millis(200)).is_ok()
}

fn host_in_url(host: IpAddr) -> String {
    match host {
        IpAddr::V4(host) => host.to_string(),
        IpAddr::V6(host) => format!("[{host}]"),
    }
}

/// Waits for the first page, then says where it is and opens it.
fn announce(address: SocketAddr, open: bool) {
    let address = reachable(address);
    while !serves_pages(address) {
        thread::sleep(Duration::from_millis(100));
    }
    let url = format!("http://{address}");
    eprintln!("the book is at {url}; Ctrl-C stops it");
    if open && open::that(&url).is_err() {
        eprintln!("no browser could be opened; open {url} by hand");
    }
}

fn serves_pages(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(stream, "GET / HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        Ok(start.ends_with(b"200"))
    };
    ask().unwrap_or(false)
}

/// Takes mdBook along when this program is told to stop.
fn stop_with_us(child: &Arc<Mutex<Child>>) -> Result<()> {
    let child = Arc::clone(child);
    ctrlc::set_handler(move || {
        let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
        std::process::exit(0);
    })
    .context("Ctrl-C cannot be listened for")
}

/// Looks now and then, rather than blocking, so that the handler of Ctrl-C gets at the child.
fn wait(child: &Mutex<Child>) -> Result<()> {
    loop {
        let ended = child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?;
        if let Some(status) = ended {
            bail!("mdbook stopped serving ({status})");
        }
        thread::sleep(Duration::from_millis(100));
    }
}
