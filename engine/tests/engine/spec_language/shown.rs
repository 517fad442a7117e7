//! Answers, as the files say them.

use super::words::{mode, shown, shown_millis, shown_nanos, shown_signed_millis};
use std::fmt::Write;
use waymaker_engine::{
    Allowance, Answer, CancelReason, ClaimId, Contention, Grant, HeldLock, PermitHolder, PoolStatus, Refusal,
    Registration, WaitingClaim,
};

/// What was answered to the request `name`. `name_of` knows the claims whose ids were told.
pub(super) fn shown_answer(
    answer: &Answer,
    name: &str,
    name_of: &dyn Fn(ClaimId) -> Option<String>,
) -> String {
    match answer {
        Answer::Granted(grant) => format!("granted {name} {}", shown_grant(grant)),
        Answer::GrantedMultiKey(grants) => {
            let mut text = format!("granted {name}");
            for key in grants {
                let (key_name, mode) = (shown(&key.key), mode(key.shared));
                let _ = write!(text, "\n  {key_name} {mode} {}", shown_grant(&key.grant));
            }
            text
        }
        Answer::Released { was_waiting } => {
            format!("released {name}{}", if *was_waiting { " before it was granted" } else { "" })
        }
        Answer::Extended { remaining_ms, clamped } => {
            let clamped = if *clamped { " clamped" } else { "" };
            format!("extended {name} remaining={}{clamped}", shown_millis(u64::from(*remaining_ms)))
        }
        Answer::Cancelled { was_waiting: true } => format!("gave up {name}"),
        Answer::Cancelled { was_waiting: false } => format!("nothing to give up at {name}"),
        Answer::Status(status) => {
            let state = if status.held { "held" } else { "waits" };
            let session = if status.session_lease { " session" } else { "" };
            let waited = match status.waited_ms {
                0 => String::new(),
                waited_ms => format!(" waited={}", shown_millis(waited_ms)),
            };
            format!(
                "{name} is `{}` {state} {}{session} fence={} remaining={} age={} priority={}{waited}",
                shown(&status.key),
                mode(status.shared),
                status.fence,
                shown_millis(u64::from(status.remaining_ms)),
                shown_millis(status.age_ms),
                status.priority
            )
        }
        Answer::Inspected(key) => {
            let mut text =
                format!("fence={} holders={} waiters={}", key.fence, key.holder_count, key.waiter_count);
            for lock in &key.holders {
                let _ = write!(text, "\n  {}", shown_lock(lock));
            }
            for waiter in &key.waiters {
                let _ = write!(text, "\n  {}", shown_waiter(waiter, name_of(waiter.id)));
            }
            text
        }
        Answer::Watching { fence, holder_count, waiter_count } => {
            format!("watches {name} fence={fence} holders={holder_count} waiters={waiter_count}")
        }
        Answer::Unwatched { was_watching: true } => format!("watches {name} no longer"),
        Answer::Unwatched { was_watching: false } => format!("did not watch {name}"),
        Answer::Verified(verified) => {
            let newest = if verified.newest { "newest" } else { "outdated" };
            let held = if verified.held { " held" } else { "" };
            format!("{newest}{held}, the newest fence is {}", verified.newest_fence)
        }
        Answer::ForceReleased(released) => {
            let waited = if released.was_waiting { " which waited" } else { "" };
            format!(
                "forced {name} of {}{waited} fence={} by {}: {}",
                shown(&released.owner),
                released.fence,
                shown(&released.by),
                shown(&released.reason)
            )
        }
        Answer::PoolDescribed(pool) => shown_pool(pool),
        Answer::TreeStatistics(tree) => format!(
            "sets={} waiting={} held={} waiting_paths={} held_paths={} distinct_paths={} segments={} distinct_segments={}",
            tree.set_count,
            tree.waiting_set_count,
            tree.held_set_count,
            tree.waiting_path_count,
            tree.held_path_count,
            tree.distinct_path_count,
            tree.segment_count,
            tree.distinct_segment_count
        ),
        Answer::CapacitySet { previous } => format!("capacity set, it was {previous}"),
        Answer::Throttled(allowance) => shown_allowance(allowance),
        Answer::Registered(registered) => {
            let renewed = if registered.renewed { " renewed" } else { "" };
            let remaining = shown_signed_millis(registered.remaining_ms);
            format!("registered {name} fence={} remaining={remaining}{renewed}", registered.fence)
        }
        Answer::Unregistered { was_expired } => {
            format!("unregistered {name}{}", if *was_expired { " of somebody who was late" } else { "" })
        }
        Answer::LookedUp(None) => "nothing is registered".to_owned(),
        Answer::LookedUp(Some(registration)) => shown_registration(registration),
        Answer::Refused(refusal) if name.is_empty() => format!("refused: {}", shown_refusal(refusal)),
        Answer::Refused(refusal) => format!("refused {name}: {}", shown_refusal(refusal)),
        Answer::Listed(_) | Answer::RegistrationsListed(_) | Answer::PoolsListed(_) => {
            unreachable!("shown page by page")
        }
        Answer::Frozen { .. } | Answer::NamespaceRemoved => unreachable!("no shard says so"),
    }
}

fn shown_grant(grant: &Grant) -> String {
    let mut text = format!("fence={}", grant.fence);
    if grant.session_lease {
        text.push_str(" session");
    } else {
        let _ = write!(text, " remaining={}", shown_millis(u64::from(grant.remaining_ms)));
    }
    for (flag, word) in [(grant.clamped, "clamped"), (grant.waited, "waited"), (grant.repeated, "repeated")] {
        if flag {
            let _ = write!(text, " {word}");
        }
    }
    text
}

pub(super) fn shown_pool(pool: &PoolStatus) -> String {
    let order = if pool.by_timestamp { "timestamp" } else { "arrival" };
    let set = if pool.is_set { " set" } else { "" };
    let mut text = format!(
        "capacity={}{set} held={} order={order} fence={} holders={} waiters={}",
        pool.capacity, pool.held, pool.fence, pool.holder_count, pool.waiter_count
    );
    for (state, claims) in [("holds", &pool.holders), ("waits for", &pool.waiters)] {
        for PermitHolder { permits, fence, ticket, age_ms, remaining_ms, owner, .. } in claims {
            let (age, remaining) = (shown_millis(*age_ms), shown_millis(u64::from(*remaining_ms)));
            let owner = shown(owner);
            let _ = write!(
                text,
                "\n  {owner} {state} {permits} fence={fence} ticket={ticket} age={age} remaining={remaining}"
            );
        }
    }
    text
}

fn shown_allowance(allowance: &Allowance) -> String {
    let Allowance { allowed, remaining, retry_after_ns, reset_after_ns } = allowance;
    let reset = shown_nanos(*reset_after_ns);
    if *allowed {
        format!("allowed remaining={remaining} reset={reset}")
    } else {
        format!("throttled remaining={remaining} retry={} reset={reset}", shown_nanos(*retry_after_ns))
    }
}

pub(super) fn shown_registration(registration: &Registration) -> String {
    let mut text = format!(
        "{} has `{}` fence={} age={} remaining={}",
        shown(&registration.owner),
        shown(&registration.key),
        registration.fence,
        shown_millis(registration.age_ms),
        shown_signed_millis(registration.remaining_ms)
    );
    for (name, value) in [("value", &registration.value), ("type", &registration.type_name)] {
        if !value.is_empty() {
            let _ = write!(text, " {name}={}", shown(value));
        }
    }
    text
}

fn shown_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Busy(contention) => format!("busy, {}", shown_contention(contention)),
        Refusal::Timeout(contention) => format!("timeout, {}", shown_contention(contention)),
        Refusal::Cancelled(CancelReason::Asked) => "cancelled".to_owned(),
        Refusal::Cancelled(CancelReason::Superseded) => "cancelled, superseded".to_owned(),
        Refusal::Cancelled(CancelReason::ConnectionLost) => "cancelled, connection lost".to_owned(),
        Refusal::Cancelled(CancelReason::Forced) => "cancelled, forced".to_owned(),
        Refusal::NotFound | Refusal::NamespaceNotFound => "not_found".to_owned(),
        Refusal::NotHeld => "not_held".to_owned(),
        Refusal::NotOwner(contention) => format!("not_owner, {}", shown_contention(contention)),
        Refusal::CapacityMismatch { capacity } => format!("capacity_mismatch, it is {capacity}"),
        Refusal::Frozen => "frozen".to_owned(),
        Refusal::BadInput { field, limit, message } => format!("bad_input, {field} ({limit}): {message}"),
        Refusal::Overloaded { limit, value } => format!("overloaded, {limit} ({value})"),
        Refusal::ScopeUnavailable(scope) => format!("scope_unavailable, {scope:?}"),
        Refusal::LogStalled => "log_stalled".to_owned(),
        Refusal::QuorumUnavailable => "quorum_unavailable".to_owned(),
        Refusal::Shutdown => "shutdown".to_owned(),
        Refusal::NoSpace => "no_space".to_owned(),
        Refusal::Recovering { remaining_ms } => format!("recovering, for {}", shown_millis(*remaining_ms)),
        Refusal::Unknown => "unknown".to_owned(),
    }
}

fn shown_contention(contention: &Contention) -> String {
    let state = if contention.held { "held" } else { "awaited" };
    let nobody = contention.owner.is_empty();
    let owner = if nobody { "nobody".to_owned() } else { shown(&contention.owner) };
    format!(
        "{state} by {owner} {} age={} remaining={} waiters={}",
        mode(contention.shared),
        shown_millis(contention.age_ms),
        shown_millis(u64::from(contention.remaining_ms)),
        contention.waiter_count
    )
}

pub(super) fn shown_lock(lock: &HeldLock) -> String {
    let mut text = format!(
        "{} {} fence={} held={} remaining={}",
        shown(&lock.owner),
        mode(lock.shared),
        lock.fence,
        shown_millis(lock.held_ms),
        shown_millis(u64::from(lock.remaining_ms))
    );
    if lock.priority != 0 {
        let _ = write!(text, " priority={}", lock.priority);
    }
    for (name, value) in [("request", &lock.request_id), ("metadata", &lock.metadata)] {
        if !value.is_empty() {
            let _ = write!(text, " {name}={}", shown(value));
        }
    }
    text
}

fn shown_waiter(waiter: &WaitingClaim, name: Option<String>) -> String {
    let WaitingClaim { shared, ticket, age_ms, remaining_ms, priority, owner, .. } = waiter;
    let (age, remaining) = (shown_millis(*age_ms), shown_millis(u64::from(*remaining_ms)));
    let mut text =
        format!("{} waits {} ticket={ticket} age={age} remaining={remaining}", shown(owner), mode(*shared));
    if *priority != 0 {
        let _ = write!(text, " priority={priority}");
    }
    if let Some(name) = name {
        let _ = write!(text, " claim={name}");
    }
    text
}
