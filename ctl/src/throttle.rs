//! `throttle`: tokens of a bucket.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use waymaker_client::{Allowance, Client, Error, Limiter, Result};

use crate::arguments::{Connection, ThrottleArguments};
use crate::exit::Exit;
use crate::{complain, complain_about, connect, show, text};

/// How many tokens come back in which time.
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
        let count = count.ok_or_else(|| bad("the number must be from 1 to 4294967295"))?;
        let unit = if per.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "1" };
        let per =
            humantime::parse_duration(&format!("{unit}{per}")).map_err(|error| bad(&error.to_string()))?;
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
            // Nothing is held, so nobody needs to stay.
            let error = Command::new(program).args(words).exec();
            let exit = match error.kind() {
                std::io::ErrorKind::NotFound => Exit::NotFound,
                _ => Exit::NotExecutable,
            };
            complain(&format!("{}: {error}", text::printable(text::bytes(program))), exit)
        }
        None => {
            let name = text::bytes(&arguments.name);
            show(|| sentence(name, allowance), || text::lines([object(name, allowance)]));
            Exit::Success
        }
    }
}

fn sentence(name: &[u8], allowance: Allowance) -> String {
    let Allowance { remaining, reset_after } = allowance;
    format!("{}: {remaining} left, full in {}\n", text::printable(name), text::pause(reset_after))
}

fn object(name: &[u8], allowance: Allowance) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "bucket", name);
    object.insert("remaining".to_owned(), allowance.remaining.into());
    object.insert("full_in_ms".to_owned(), text::milliseconds(Some(allowance.reset_after)));
    object.into()
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
        // Never given up half way: nobody would know whether the tokens were taken.
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

/// The answer is there; a server out of reach changes nothing about it.
async fn close(client: Client) {
    let _: std::result::Result<(), Error> = client.close().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_number_and_a_time() {
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
