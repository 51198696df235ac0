//! What can be typed after `braid bench`.

use std::ffi::OsString;
use std::net::SocketAddr;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchCommand,
}

/// One variant for each comparison, and hidden ones for the processes it consists of.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Network namespaces with shaped links
    #[command(hide = true, subcommand)]
    Lab(LabCommand),
    /// Become another command, in a host of a lab
    #[command(hide = true)]
    Exec(ExecArgs),
    /// One plain TCP stream
    #[command(hide = true)]
    Line(LineArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Bring a lab up; prints its hosts and their addresses
    Up {
        /// Name of the lab
        name: String,
        /// Hosts n0, n1 ...
        #[arg(long, value_name = "N", default_value_t = 5)]
        nodes: u16,
        /// Hosts c0, c1 ...
        #[arg(long, value_name = "K", default_value_t = 1)]
        clients: u16,
        /// Rate of every link, in bits a second [default: as fast as it goes]
        #[arg(long, value_name = "RATE", value_parser = parse_rate)]
        link: Option<u64>,
    },
    /// End what runs in a lab, and remove it
    Down {
        /// Name of the lab
        name: String,
    },
    /// Print what every host has sent and received, in bytes
    Bytes {
        /// Name of the lab
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Name of the lab
    #[arg(long, requires = "host")]
    pub(crate) lab: Option<String>,
    /// c0, c1 ... or n0, n1 ...
    #[arg(long, requires = "lab")]
    pub(crate) host: Option<String>,
    /// End with the process that started this
    #[arg(long)]
    pub(crate) tied: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("end").required(true).args(["listen", "connect"]))]
pub(crate) struct LineArgs {
    /// Receive here, once, and print what came
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Send there until it ends
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) connect: Option<SocketAddr>,
    /// How long to receive
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) seconds: f64,
}

/// Reads a rate in bits a second. The error says what would have been right.
fn parse_rate(text: &str) -> Result<u64, String> {
    let plain = text.strip_suffix("bit").unwrap_or(text);
    let (digits, unit) = match plain.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&plain[..at], 1_000),
        Some((at, 'M' | 'm')) => (&plain[..at], 1_000_000),
        Some((at, 'G' | 'g')) => (&plain[..at], 1_000_000_000),
        _ => (plain, 1),
    };
    let number: Option<u64> = digits.parse().ok().filter(|_| !digits.starts_with('+'));
    let rate = number.and_then(|number| number.checked_mul(unit));
    rate.filter(|rate| (1_000_000..=1_000_000_000_000).contains(rate))
        .ok_or_else(|| "not a rate from 1M to 1000G bits a second; write 500M, say".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, rate) in [("500M", 500_000_000), ("1g", 1_000_000_000), ("2000000", 2_000_000)] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        assert_eq!(parse_rate("500mbit"), Ok(500_000_000));
        for text in ["", "M", "0", "1K", "-5M", "+5M", "1.5G", "5 M", "2000G", "99999999999999999G"]
        {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
