//! Chromium, or a browser built on it: where it is, and what it is started with.

use anyhow::{Context, Result, ensure};
use std::env;
use std::path::PathBuf;

/// The options that it is always started with: no window, nothing asked or fetched on its own account, and no
/// name resolved but this machine's, so that it never reaches the network.
pub const FLAGS: &[&str] = &[
    "--headless=new",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--no-sandbox",
    "--disable-gpu",
    // Otherwise each window starts two more processes, for suggestions below an address bar that is never shown.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--password-store=basic",
    "--use-mock-keychain",
];

/// The names of Chromium and its kin on the PATH.
const NAMES: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "microsoft-edge",
];

/// Their places on systems that do not put programs on the PATH. On Windows this is below the
/// folders for programs.
const PLACES: &[&str] = &[
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    r"Google\Chrome\Application\chrome.exe",
    r"Chromium\Application\chrome.exe",
    r"Microsoft\Edge\Application\msedge.exe",
];

/// The program to start: what the variable `CHROME` names, or else the first that is installed.
///
/// # Errors
///
/// If `CHROME` names no file.
pub fn find() -> Result<Option<PathBuf>> {
    if let Some(named) = env::var_os("CHROME").filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        ensure!(named.is_file(), "CHROME names {}, which is no file", named.display());
        return Ok(Some(named));
    }
    let on_the_path = NAMES.iter().filter_map(|name| which::which(name).ok());
    let folders = ["HOME", "PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"];
    let folders: Vec<_> =
        folders.iter().filter_map(env::var_os).map(PathBuf::from).collect();
    let in_places = PLACES.iter().flat_map(|place| {
        let below =
            folders.iter().map(move |folder| folder.join(place.trim_start_matches('/')));
        std::iter::once(PathBuf::from(place)).chain(below)
    });
    Ok(on_the_path.chain(in_places).find(|program| program.is_file()))
}

/// Returns the program to start, where there has to be one.
///
/// # Errors
///
/// If `CHROME` names no file, or none is installed.
pub fn required() -> Result<PathBuf> {
    find()?.context(
        "`--formats` takes Chromium or a browser built on it, and there is none; install Chromium or Chrome, or say \
         where it is in the variable CHROME",
    )
}
