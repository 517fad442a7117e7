//! Messages of the protocol in the words of the spec files.

use crate::parity::words::{mode, shown, shown_millis, shown_nanos, shown_signed_millis};
use waymaker_protocol::{
    CancelReason, Contention, Entry, ErrorAnswer, ErrorCode, ErrorDetail, Event, ListedLock, LockId,
    LockState, PoolOrder, Response, RevokeReason,
};

fn remaining(remaining_ms: u32) -> String {
    shown_millis(u64::from(remaining_ms))
}

fn flags(said: &[(bool, &str)]) -> String {
    said.iter().filter(|(is_so, _)| *is_so).map(|(_, word)| format!(" {word}")).collect()
}

/// An answer to a request that is named so. `known` has the names of claims whose ids were told.
pub(super) fn answer(response: &Response<'_>, name: &str, known: &dyn Fn(&str) -> Option<String>) -> String {
    match response {
        Response::Granted(granted) => {
            let said =
                [(granted.clamped, "clamped"), (granted.waited, "waited"), (granted.repeated, "repeated")];
            let (fence, flags) = (granted.fence, flags(&said));
            format!("granted {name} fence={fence} remaining={}{flags}", remaining(granted.remaining_ms))
        }
        Response::Released(released) => {
            format!("released {name}{}", if released.was_waiting { " before it was granted" } else { "" })
        }
        Response::Extended(extended) => {
            let clamped = flags(&[(extended.clamped, "clamped")]);
            format!("extended {name} remaining={}{clamped}", remaining(extended.remaining_ms))
        }
        Response::Cancelled(cancelled) if cancelled.was_waiting => format!("gave up {name}"),
        Response::Cancelled(_) => format!("nothing to give up at {name}"),
        Response::Status(status) => {
            let state = if status.state == LockState::Held { "held" } else { "waits" };
            let waited = if status.waited_ms == 0 {
                String::new()
            } else {
                format!(" waited={}", shown_millis(status.waited_ms))
            };
            format!(
                "{name} is `{}` {state} {} fence={} remaining={} age={} priority={}{waited}",
                shown(status.key),
                mode(status.shared),
                status.fence,
                remaining(status.remaining_ms),
                shown_millis(status.age_ms),
                status.priority
            )
        }
        Response::Inspected(key) => {
            let mut text =
                format!("fence={} holders={} waiters={}", key.fence, key.holder_count, key.waiter_count);
            for holder in &key.holders {
                let (owner, held) = (shown(holder.owner), shown_millis(holder.held_ms));
                let (mode, remaining) = (mode(holder.shared), remaining(holder.remaining_ms));
                text += &format!("\n{owner} {mode} fence={} held={held} remaining={remaining}", holder.fence);
            }
            for waiter in &key.waiters {
                let (owner, age) = (shown(waiter.owner), shown_millis(waiter.age_ms));
                let (mode, remaining) = (mode(waiter.shared), remaining(waiter.remaining_ms));
                text += &format!(
                    "\n{owner} waits {mode} ticket={} age={age} remaining={remaining}",
                    waiter.ticket
                );
                if waiter.priority != 0 {
                    text += &format!(" priority={}", waiter.priority);
                }
                if let Some(name) = known(&waiter.id.to_string()) {
                    text += &format!(" claim={name}");
                }
            }
            text
        }
        Response::Watching(watching) => {
            let (holders, waiters) = (watching.holder_count, watching.waiter_count);
            format!("watches {name} fence={} holders={holders} waiters={waiters}", watching.fence)
        }
        Response::Unwatched(unwatched) if unwatched.was_watching => format!("watches {name} no longer"),
        Response::Unwatched(_) => format!("did not watch {name}"),
        Response::Verified(verified) => {
            let newest = if verified.newest { "newest" } else { "outdated" };
            let held = flags(&[(verified.held, "held")]);
            format!("{newest}{held}, the newest fence is {}", verified.newest_fence)
        }
        Response::ForceReleased(released) => {
            let waited = flags(&[(released.was_waiting, "which waited")]);
            format!("forced {name} of {}{waited} fence={}", shown(released.owner), released.fence)
        }
        Response::Frozen(frozen) => {
            let as_it_was = if frozen.changed { "" } else { ", as it was" };
            format!("frozen prefixes: {}{as_it_was}", frozen.frozen_count)
        }
        Response::CapacitySet(set) => format!("capacity set, it was {}", set.previous),
        Response::TreeStatistics(tree) => format!(
            "sets={} waiting={} held={} waiting_paths={} held_paths={} distinct_paths={} segments={} distinct_segments={}",
            tree.sets,
            tree.waiting_sets,
            tree.held_sets,
            tree.waiting_paths,
            tree.held_paths,
            tree.distinct_paths,
            tree.segments,
            tree.distinct_segments
        ),
        Response::PoolDescribed(pool) => described(pool),
        Response::Throttled(throttled) => {
            let (left, reset) = (throttled.remaining, shown_nanos(throttled.reset_after_ns));
            if throttled.allowed {
                format!("allowed remaining={left} reset={reset}")
            } else {
                format!(
                    "throttled remaining={left} retry={} reset={reset}",
                    shown_nanos(throttled.retry_after_ns)
                )
            }
        }
        Response::Registered(registered) => {
            let (fence, renewed) = (registered.fence, flags(&[(registered.renewed, "renewed")]));
            format!(
                "registered {name} fence={fence} remaining={}{renewed}",
                shown_signed_millis(registered.remaining_ms)
            )
        }
        Response::Unregistered(unregistered) => {
            let late = flags(&[(unregistered.was_expired, "of somebody who was late")]);
            format!("unregistered {name}{late}")
        }
        Response::LookedUp(found) if found.found => entry(&found.entry),
        Response::LookedUp(_) => "nothing is registered".to_owned(),
        Response::Error(error) if name.is_empty() => format!("refused: {}", refusal(error)),
        Response::Error(error) => format!("refused {name}: {}", refusal(error)),
        other => panic!("{other:?} is not shown"),
    }
}

fn described(pool: &waymaker_protocol::PoolDescribed<'_>) -> String {
    let order = if pool.order == PoolOrder::Timestamp { "timestamp" } else { "arrival" };
    let mut text = format!(
        "capacity={}{} held={} order={order} fence={} holders={} waiters={}",
        pool.capacity,
        flags(&[(pool.is_set, "set")]),
        pool.held,
        pool.fence,
        pool.holder_count,
        pool.waiter_count
    );
    for holder in &pool.holders {
        let (owner, age, remaining) =
            (shown(holder.owner), shown_millis(holder.age_ms), remaining(holder.remaining_ms));
        text += &format!(
            "\n{owner} holds {} fence={} age={age} remaining={remaining}",
            holder.permits, holder.fence
        );
    }
    for waiter in &pool.waiters {
        let (owner, age, remaining) =
            (shown(waiter.owner), shown_millis(waiter.age_ms), remaining(waiter.remaining_ms));
        let (permits, ticket) = (waiter.permits, waiter.ticket);
        text +=
            &format!("\n{owner} waits for {permits} fence=0 ticket={ticket} age={age} remaining={remaining}");
    }
    text
}

/// One hold of a list; its key is already in words.
pub(super) fn listed(key: &str, lock: &ListedLock<'_>) -> String {
    let (owner, mode, fence) = (shown(lock.owner), mode(lock.shared), lock.fence);
    let (held, remaining) = (shown_millis(lock.held_ms), remaining(lock.remaining_ms));
    let mut text = format!("{key}: {owner} {mode} fence={fence} held={held} remaining={remaining}");
    if lock.priority != 0 {
        text += &format!(" priority={}", lock.priority);
    }
    for (name, value) in [("request", lock.request_id), ("metadata", lock.metadata)] {
        if !value.is_empty() {
            text += &format!(" {name}={}", shown(value));
        }
    }
    text
}

pub(super) fn entry(entry: &Entry<'_>) -> String {
    let (owner, key, fence) = (shown(entry.owner), shown(entry.key), entry.fence);
    let (age, remaining) = (shown_millis(entry.age_ms), shown_signed_millis(entry.remaining_ms));
    let mut text = format!("{owner} has `{key}` fence={fence} age={age} remaining={remaining}");
    for (name, value) in [("value", entry.value), ("type", entry.type_name)] {
        if !value.is_empty() {
            text += &format!(" {name}={}", shown(value));
        }
    }
    text
}

/// What happened. `name` is that of the watch that is told, `name_of` has those of claims.
pub(super) fn event(event: &Event<'_>, name: &str, name_of: &dyn Fn(LockId) -> String) -> String {
    match event {
        Event::Expired { id } => format!("expired {}", name_of(*id)),
        Event::LeaseMoved { id, remaining_ms, .. } => {
            format!("lease moved {} remaining={}", name_of(*id), remaining(*remaining_ms))
        }
        Event::Revoked { id, reason, message } => {
            let reason = match reason {
                RevokeReason::ReleasedElsewhere => "released elsewhere".to_owned(),
                RevokeReason::ConnectionLost => "connection lost".to_owned(),
                RevokeReason::Forced => format!("forced, {}", shown(message)),
                RevokeReason::Other(number) => number.to_string(),
            };
            format!("revoked {}: {reason}", name_of(*id))
        }
        Event::TakenUp { id } => format!("taken up {}", name_of(*id)),
        Event::KeyHeld { fence, shared, owner } => {
            format!("sees {name} held {} fence={fence} by {}", mode(*shared), shown(owner))
        }
        Event::KeyFreed { fence } => format!("sees {name} free fence={fence}"),
        other => format!("{other:?}"),
    }
}

fn refusal(error: &ErrorAnswer<'_>) -> String {
    let name = error.code.name();
    match (&error.detail, error.code) {
        (ErrorDetail::Contention(contention), _) => format!("{name}, {}", shown_contention(contention)),
        (ErrorDetail::Text { value, .. }, ErrorCode::Cancelled) => match CancelReason::from_number(*value) {
            CancelReason::Asked => name.to_owned(),
            CancelReason::Superseded => format!("{name}, superseded"),
            CancelReason::ConnectionLost => format!("{name}, connection lost"),
            CancelReason::Forced => format!("{name}, forced"),
            CancelReason::Other(number) => format!("{name}, {number}"),
        },
        (ErrorDetail::Text { value, .. }, ErrorCode::CapacityMismatch) => format!("{name}, it is {value}"),
        (ErrorDetail::Text { value, field, .. }, ErrorCode::BadInput | ErrorCode::Overloaded) => {
            format!("{name}, {} ({value})", shown(field))
        }
        _ => name.to_owned(),
    }
}

fn shown_contention(contention: &Contention<'_>) -> String {
    let state = if contention.held { "held" } else { "awaited" };
    let owner = if contention.owner.is_empty() { "nobody".to_owned() } else { shown(contention.owner) };
    let (age, remaining) = (shown_millis(contention.age_ms), remaining(contention.remaining_ms));
    let (mode, waiters) = (mode(contention.shared), contention.waiter_count);
    format!("{state} by {owner} {mode} age={age} remaining={remaining} waiters={waiters}")
}
