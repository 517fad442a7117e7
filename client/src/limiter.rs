//! Rate limits.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol as wire;
use waymaker_protocol::limits::{BUCKET_COUNT_MAX, KEY_LEN_MAX};
use waymaker_protocol::{ErrorCode, Items, NamespaceKind, Request, Response};

use crate::allowance::Allowance;
use crate::error::{Error, Result, retry_after};
use crate::key::Key;
use crate::request::check::{check_len, check_positive};
use crate::space::Space;

/// A bucket of tokens, from [`Client::limiter`](crate::Client::limiter).
///
/// The bucket holds at most `burst` tokens and regains `rate` tokens in each period. This rule is part of each request.
/// The server does not store the rule; it only stores how full the bucket is.
///
/// ```
/// # use std::time::Duration;
/// # use waymaker_client::Error;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// let limiter = client.limiter("mail/customer-7", 100, Duration::from_secs(1), 20);
/// match limiter.take(1).await {
///     Ok(allowance) => println!("go on, {} are left", allowance.remaining),
///     Err(Error::Throttled { retry_after, .. }) => println!("not now: {retry_after:?}"),
///     Err(error) => return Err(error),
/// }
/// // Or sleep for as long as it takes.
/// limiter.wait(1).await?;
/// # Ok(())
/// # });
/// ```
///
/// If a take is repeated because the connection was lost, it counts once while the session lives. If the session is
/// lost too, it may count twice.
#[derive(Clone, Debug)]
pub struct Limiter {
    space: Arc<Space>,
    bucket: Bucket,
}

/// A bucket with its rule.
#[derive(Clone, Debug)]
struct Bucket {
    name: Key,
    rate: u32,
    burst: u32,
    period_ns: u64,
}

/// A number of tokens of one bucket, for [`Client::take_all`](crate::Client::take_all).
#[derive(Clone, Debug)]
pub struct Cost {
    bucket: Bucket,
    cost: u32,
}

impl Limiter {
    pub(crate) fn new(space: Arc<Space>, name: &[u8], rate: u32, period: Duration, burst: u32) -> Self {
        // A longer period than `u64::MAX` nanoseconds, about 584 years, is shortened to that.
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        Self { space, bucket: Bucket { name: name.into(), rate, burst, period_ns } }
    }

    /// Takes `cost` tokens, all or none, and returns the fill level afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Throttled`] if there are too few tokens, with the time until the next attempt can succeed. It has no
    /// time if `cost` exceeds the burst. [`Error::Refused`] for an invalid name or rule, and for other refusals.
    /// [`Error::Unavailable`] if the server has not served the request, for example because there is no connection.
    /// [`Error::Uncertain`] if the request was sent, but its outcome is unknown because no response arrived in time.
    /// [`Error::Closed`] if the client was closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the server may still take the tokens.
    pub async fn take(&self, cost: u32) -> Result<Allowance> {
        self.throttle(cost, false).await
    }

    /// Returns the fill level without taking tokens.
    ///
    /// # Errors
    ///
    /// As [`Limiter::take`], but never [`Error::Throttled`].
    pub async fn peek(&self) -> Result<Allowance> {
        self.throttle(0, false).await
    }

    /// Refunds tokens that were taken for work that was not done. The bucket never holds more than its burst.
    ///
    /// # Errors
    ///
    /// As [`Limiter::take`], but never [`Error::Throttled`].
    pub async fn refund(&self, cost: u32) -> Result<Allowance> {
        self.throttle(cost, true).await
    }

    /// Takes `cost` tokens. While there are too few, sleeps for the time that the server reports and tries again.
    /// There is no queue, so other clients may take the tokens first each time.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped while it sleeps; no tokens are taken then. A take that is already sent may still
    /// take its tokens.
    ///
    /// # Errors
    ///
    /// Fails as [`Limiter::take`] does, with one exception: fails with [`Error::Throttled`] only if waiting cannot
    /// help, because `cost` exceeds the burst.
    pub async fn wait(&self, cost: u32) -> Result<Allowance> {
        loop {
            let retry_after = match self.take(cost).await {
                Err(Error::Throttled { retry_after: Some(retry_after), .. }) => retry_after,
                other => return other,
            };
            let mut timer = self.space.timer()?;
            timer.arm(self.space.clock.now().after(retry_after));
            poll_fn(|context| timer.poll_fired(context)).await;
        }
    }

    /// Returns a cost of `cost` tokens of this bucket, to take them together with tokens of other buckets.
    pub fn cost(&self, cost: u32) -> Cost {
        Cost { bucket: self.bucket.clone(), cost }
    }

    async fn throttle(&self, cost: u32, refund: bool) -> Result<Allowance> {
        self.bucket.check()?;
        let bucket = self.bucket.clone();
        let throttled = self
            .space
            .handle(NamespaceKind::Limit)?
            .change(
                None,
                move |number, out| {
                    let throttle = wire::Throttle { bucket: bucket.wire(cost), refund };
                    Request::Throttle(throttle).encode(number, out);
                },
                |response| throttled(&response),
            )
            .await?;
        allowance(throttled)
    }
}

/// Takes tokens from several buckets, or refunds them: all or none.
pub(crate) async fn take_all(space: &Space, costs: Vec<Cost>, refund: bool) -> Result<Allowance> {
    let limit = BUCKET_COUNT_MAX as u64;
    let bad = |message: String| Err(Error::refused(ErrorCode::BadInput, "costs", limit, message));
    match costs.len() {
        0 => return bad("must not be empty".to_owned()),
        count if count > BUCKET_COUNT_MAX => return bad(format!("{count} buckets; the maximum is {limit}")),
        _ => {}
    }
    for cost in &costs {
        cost.bucket.check()?;
    }
    let throttled = space
        .handle(NamespaceKind::Limit)?
        .change(
            None,
            move |number, out| {
                let mut buffer = Vec::new();
                let buckets = costs.iter().map(|cost| cost.bucket.wire(cost.cost));
                let buckets = Items::new(buckets, &mut buffer).expect("the buckets were checked");
                Request::ThrottleAll(wire::ThrottleAll { buckets, refund }).encode(number, out);
            },
            |response| throttled(&response),
        )
        .await?;
    allowance(throttled)
}

impl Bucket {
    fn check(&self) -> Result<()> {
        check_len("name", &self.name, 1, KEY_LEN_MAX)?;
        check_positive("rate", u64::from(self.rate))?;
        check_positive("burst", u64::from(self.burst))?;
        check_positive("period", self.period_ns)
    }

    fn wire(&self, cost: u32) -> wire::Bucket<'_> {
        let Self { name, rate, burst, period_ns } = self;
        wire::Bucket { rate: *rate, burst: *burst, cost, period_ns: *period_ns, name }
    }
}

fn throttled(response: &Response<'_>) -> Option<wire::Throttled> {
    match response {
        Response::Throttled(throttled) => Some(*throttled),
        _ => None,
    }
}

fn allowance(throttled: wire::Throttled) -> Result<Allowance> {
    let reset_after = Duration::from_nanos(throttled.reset_after_ns);
    let allowance = Allowance { remaining: throttled.remaining, reset_after };
    if !throttled.allowed {
        let retry_after = retry_after(throttled.retry_after_ns);
        return Err(Error::Throttled { retry_after, bucket: Some(allowance) });
    }
    Ok(allowance)
}
