//! The HTTP servers of the monitor, each in a thread of its own.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use axum::Router;
use tokio::runtime::Builder;

use crate::failure::{Failure, system_error};

/// Serves at an address, or on a port of this machine alone. Returns where.
pub(super) fn serve(option: &str, address: &str, router: Router) -> Result<SocketAddr, Failure> {
    let local = address.bytes().all(|byte| byte.is_ascii_digit());
    let address = if local { format!("127.0.0.1:{address}") } else { address.to_owned() };
    begin(&address, router).map_err(|error| {
        let next = format!("write {option} HOST:PORT with a port that is free");
        Failure::refused("monitor", &address, system_error(&error), next)
    })
}

fn begin(address: &str, router: Router) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let at = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let listener = {
        let _within = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    // It ends with the process.
    let run = move || runtime.block_on(async { axum::serve(listener, router).await });
    thread::Builder::new().name("http".into()).spawn(run)?;
    Ok(at)
}
