//! `throttle`: takes tokens of a bucket.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Allowance, Client, Error, Limiter, Result};

use crate::connection::{Connection, connect};
use crate::exit::Exit;
use crate::output::{complain, complain_about, show};
use crate::{text, values};

pub(crate) const HELP: &str = "\
A bucket holds at most --burst tokens and gains --rate. If it has enough tokens
for --cost, they are taken and CMD replaces waymaker-ctl; without CMD the number
of tokens left is printed. If not, an error names the time of the next attempt
and the exit code is 119. All users of a bucket should give the same rate and
burst.

Examples:
  Send at most five alerts a minute, and drop the others:
      waymaker-ctl throttle alerts --rate 5/m -- ./alert.sh
  Send a hundred mails a second, at most twenty at once; wait up to ten seconds:
      waymaker-ctl throttle mail --rate 100/s --burst 20 --wait 10s -- ./send.sh
  Show the tokens left:
      waymaker-ctl throttle mail --rate 100/s --burst 20 --peek
";

#[derive(Debug, Args)]
pub(crate) struct ThrottleArguments {
    /// Name of the bucket
    #[arg(value_parser = values::key())]
    name: OsString,
    /// Rate at which the bucket gains tokens, such as 100/s, 5/m or 1/250ms
    #[arg(long, value_name = "NUMBER/TIME", help_heading = "Bucket")]
    rate: Rate,
    /// Most tokens that the bucket holds [default: the number of --rate]
    #[arg(long, value_name = "NUMBER", value_parser = values::tokens, help_heading = "Bucket")]
    burst: Option<u32>,
    /// Number of tokens to take
    #[arg(long, default_value = "1", value_name = "NUMBER", value_parser = values::tokens, help_heading = "Bucket")]
    cost: u32,
    /// Show the bucket without taking tokens
    #[arg(long, conflicts_with_all = ["cost", "wait", "command"], help_heading = "Bucket")]
    peek: bool,
    /// Longest wait for enough tokens [default: 0s]
    #[arg(long, value_parser = values::time, value_name = "TIME", help_heading = "Bucket")]
    wait: Option<Duration>,
    /// Command to run, with its arguments [default: none]
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A bucket with the tokens that are left.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Bucket")]
pub(crate) struct BucketObject {
    /// Name of the bucket.
    bucket: String,
    /// Hexadecimal digits of the name. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket_hex: Option<String>,
    /// Number of tokens left.
    remaining: u64,
    /// Time in milliseconds until the bucket is full.
    full_in_ms: u64,
}

/// Rate of a bucket: it gains `count` tokens in the time `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) count: u32,
    pub(crate) per: Duration,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let bad = |problem: &str| format!("{problem}; a rate looks like 100/s, 5/m or 1/250ms");
        let (count, per) = text.split_once('/').ok_or_else(|| bad("a slash is missing"))?;
        let count = count.parse().ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| bad("the number must be from 1 to 4,294,967,295"))?;
        let unit = if per.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "1" };
        let per = humantime::parse_duration(&format!("{unit}{per}"))
            .map_err(|_| bad("the time after the slash is a number and a unit: ms, s, m, h or d"))?;
        if per.is_zero() { Err(bad("the time must not be zero")) } else { Ok(Self { count, per }) }
    }
}

pub(crate) async fn run(connection: &Connection, arguments: &ThrottleArguments) -> Exit {
    let allowance = match ask(connection, arguments).await {
        Ok(allowance) => allowance,
        Err(error) => return complain_about(text::bytes(&arguments.name), &error),
    };
    match arguments.command.split_first() {
        Some((program, words)) => {
            // Nothing is held, so waymaker-ctl need not stay.
            let error = Command::new(program).args(words).exec();
            let exit = match error.kind() {
                std::io::ErrorKind::NotFound => Exit::NotFound,
                _ => Exit::NotExecutable,
            };
            complain(&format!("{}: {error}", text::printable(text::bytes(program))), exit)
        }
        None => {
            let name = text::bytes(&arguments.name);
            show(|| sentence(name, allowance), [object(name, allowance)]);
            Exit::Success
        }
    }
}

fn sentence(name: &[u8], allowance: Allowance) -> String {
    let Allowance { remaining, reset_after } = allowance;
    format!("{}: {remaining} left, full in {}\n", text::printable(name), text::pause(reset_after))
}

fn object(name: &[u8], allowance: Allowance) -> BucketObject {
    let (bucket, bucket_hex) = text::json(name);
    let Allowance { remaining, reset_after } = allowance;
    BucketObject { bucket, bucket_hex, remaining, full_in_ms: text::milliseconds(reset_after) }
}

async fn ask(connection: &Connection, arguments: &ThrottleArguments) -> Result<Allowance> {
    let client = connect(connection).await?;
    let Rate { count, per } = arguments.rate;
    let burst = arguments.burst.unwrap_or(count);
    let limiter = client.limiter(text::bytes(&arguments.name), count, per, burst);
    let allowance = if arguments.peek { limiter.peek().await } else { take(&limiter, arguments).await };
    close(client).await;
    allowance
}

async fn take(limiter: &Limiter, arguments: &ThrottleArguments) -> Result<Allowance> {
    let (begin, wait) = (Instant::now(), arguments.wait.unwrap_or_default());
    loop {
        // Each request is awaited to its end: otherwise it would be unknown whether the tokens were taken.
        match limiter.take(arguments.cost).await {
            Err(Error::Throttled { retry_after: Some(pause), .. })
                if begin.elapsed().saturating_add(pause) <= wait =>
            {
                tokio::time::sleep(pause).await;
            }
            result => return result,
        }
    }
}

/// Closes the connection. An error does not change the result of the request.
async fn close(client: Client) {
    let _: std::result::Result<(), Error> = client.close().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_time() {
        for (text, count, per) in [
            ("100/s", 100, Duration::from_secs(1)),
            ("5/m", 5, Duration::from_secs(60)),
            ("1/250ms", 1, Duration::from_millis(250)),
            ("3/2h", 3, Duration::from_secs(7_200)),
        ] {
            assert_eq!(text.parse(), Ok(Rate { count, per }), "{text}");
        }
        for text in ["", "5", "0/s", "-1/s", "x/s", "5/", "5/parsec", "5/0s"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.contains("a rate looks like"), "{error}");
        }
    }
}
