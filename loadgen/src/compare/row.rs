//! Rows of the table, and the plan of one slice of a row.

use std::time::Duration;

use serde::Serialize;
use waymaker_client::Credentials;

use super::front::Front;
use super::options::{CompareOptions, RowShape};
use crate::address::Address;
use crate::options::{RedisRelease, Window, WorkloadName};
use crate::plan::Plan;
use crate::scope::Scope;
use crate::shape::Shape;
use crate::system::System;
use crate::units::show_rate;

/// Requests per second in the row that compares CPU time per request.
pub const FIXED_RATE: u64 = 100_000;
/// Connections and depth of that row: enough that a short stall of the server never blocks the client.
const FIXED_RATE_SHAPE: RowShape = RowShape { connections: 50, depth: 16 };
/// Warm-up of a slice: the slice length divided by this.
const WARMUP_SHARE: u32 = 8;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Connections and depth.
    pub shape: RowShape,
    /// How each connection refills its requests in flight.
    pub window: Window,
    /// Whether Waymaker (`--busy-poll`) and the clients of all targets busy-poll.
    pub busy_poll: bool,
    /// Requests per second; `None` is a closed loop.
    pub rate: Option<u64>,
    /// Front end that is compared.
    pub front: Option<Front>,
}

impl Row {
    /// Returns all rows for these options. A front end has one row for each shape. Otherwise there are bursts,
    /// sliding windows if they differ from bursts, busy-polling if it is useful, and the fixed rate. Durable locks
    /// wait for a disk, so busy-polling and CPU time are not compared for them.
    pub fn all(options: &CompareOptions) -> Vec<Self> {
        let front = options.front;
        if front.is_some() {
            let row_of = |shape: RowShape| {
                let window = if shape.depth > 1 { Window::Sliding } else { Window::Burst };
                Self { shape, window, busy_poll: false, rate: None, front }
            };
            return options.rows.iter().copied().map(row_of).collect();
        }
        let mut rows = Vec::new();
        for &shape in &options.rows {
            let burst = Self { shape, window: Window::Burst, busy_poll: false, rate: None, front };
            rows.push(burst);
            if shape.depth > 1 {
                rows.push(Self { window: Window::Sliding, ..burst });
            }
            if options.scope == Scope::Ephemeral && shape.connections == 1 && shape.depth == 1 {
                rows.push(Self { busy_poll: true, ..burst });
            }
        }
        let fixed = Self {
            shape: FIXED_RATE_SHAPE,
            window: Window::Sliding,
            busy_poll: false,
            rate: Some(FIXED_RATE),
            front,
        };
        if options.scope == Scope::Ephemeral {
            rows.push(fixed);
        }
        rows
    }

    /// Whether this row is measured for the system. etcd is too slow for more than one request at a time on each
    /// connection, except in gRPC comparisons.
    pub fn includes(&self, system: System) -> bool {
        system != System::Etcd || self.shape.depth == 1 || self.front.is_some()
    }

    /// Returns the name in tables.
    pub fn title(&self) -> String {
        let how = match (self.rate, self.busy_poll) {
            (Some(rate), _) => format!("at {}", show_rate(rate as f64)),
            (None, true) => "busy polling".to_owned(),
            (None, false) if self.shape.depth == 1 => String::new(),
            (None, false) => self.window.name().to_owned(),
        };
        format!("{} {how}", self.shape).trim_end().to_owned()
    }

    /// Returns the plan of one slice of this row.
    pub fn plan(&self, address: &Address, options: &CompareOptions, seed: u64) -> anyhow::Result<Plan> {
        let mut plan = slice_plan(address, options, seed)?;
        plan.connections = self.shape.connections;
        plan.depth = self.shape.depth;
        plan.window = self.window;
        plan.spin = self.busy_poll;
        plan.rate = self.rate;
        if let Some(front) = self.front {
            plan.workload = front.workload_of(address.system);
        }
        if options.scope == Scope::Quorum {
            // A grant is one write of the cluster, so it is compared with a write. A release writes nothing and
            // does not count.
            plan.workload = if address.system == System::Etcd { WorkloadName::Put } else { WorkloadName::Rw };
            plan.shape = Shape { item_count: 1, ..Shape::default() };
        }
        plan.check()?;
        Ok(plan)
    }
}

/// Returns the common settings of all slices, with 1 connection and depth 1.
pub fn slice_plan(address: &Address, options: &CompareOptions, seed: u64) -> anyhow::Result<Plan> {
    let Ok(key_count @ 1..) = u32::try_from(options.keys) else {
        anyhow::bail!("--keys is too large; it must be 1 to {}", u32::MAX);
    };
    Ok(Plan {
        target: address.to_string(),
        system: address.system,
        socket_address: address.resolve()?,
        login: address.login.clone(),
        tls: None,
        credentials: Credentials::default(),
        connections: 1,
        depth: 1,
        threads: 1,
        duration: options.slice_length(),
        warmup: (options.slice_length() / WARMUP_SHARE).max(Duration::from_millis(5)),
        key_count,
        has_distinct_keys: false,
        key_size: options.key_size(),
        lease_ms: 30_000,
        workload: WorkloadName::Pair,
        scope: options.scope,
        // The documented goals use DEL, which costs Redis less than the script.
        redis_release: RedisRelease::Del,
        shape: Shape::default(),
        rate: None,
        window: Window::Burst,
        seed,
        pin: vec![options.load_core],
        spin: false,
        poll_interval: Duration::ZERO,
        keeps_samples: false,
    })
}

/// Whether the row is the one with this shape, window and polling mode.
pub fn is_row(row: &Row, shape: &str, window: Window, busy_poll: bool) -> bool {
    row.shape.to_string() == shape && row.window == window && row.busy_poll == busy_poll && row.rate.is_none()
}

/// Returns the systems that ratios are reported for.
pub fn references(scope: Scope, front: Option<Front>) -> &'static [System] {
    match (front, scope) {
        (Some(front), _) => front.references(),
        (None, Scope::Ephemeral) => &[System::Redis, System::Echo],
        (None, Scope::Local) => &[System::Redis, System::Etcd, System::Echo],
        (None, Scope::Quorum) => &[System::Etcd],
    }
}
