// The last five minutes of live events, and the rates and quantiles between them.

const SPAN_MS = 5 * 60 * 1000;
const RATE_WINDOW_MS = 5000;
const QUANTILE_WINDOW_MS = 10000;
/** Events with a longer pause between them leave a gap in the charts. */
export const GAP_MS = 3500;

export class History {
  /** Points for the charts, oldest first: `{time, grants, wait, handover, sync, quorum, busy}`. */
  points = [];
  #events = [];

  /** Adds an event. The uptime is the time axis, because the wall clock may be set. */
  add(event) {
    const last = this.latest;
    if (last && restarted(last, event)) {
      this.#events = [];
      this.points = [];
    }
    this.#events.push(event);
    const now = event.server.uptime_ms;
    while (now - this.#events[0].server.uptime_ms > SPAN_MS) this.#events.shift();
    this.points.push({
      time: now,
      grants: this.rate("acquires", "granted"),
      wait: this.quantiles(waits),
      handover: this.quantiles(handovers),
      sync: this.quantiles(syncs),
      quorum: this.quantiles(quorumRequests),
      busy: event.workers.length === 0 ? null : { mean: mean(event.workers), max: Math.max(...event.workers) },
    });
    while (now - this.points[0].time > SPAN_MS) this.points.shift();
  }

  get latest() {
    return this.#events.at(-1) ?? null;
  }

  /** The newest event that is at least this much older than the latest one, or the oldest event. */
  #before(ms) {
    const limit = this.latest.server.uptime_ms - ms;
    for (let index = this.#events.length - 1; index > 0; index -= 1) {
      if (this.#events[index].server.uptime_ms <= limit) return this.#events[index];
    }
    return this.#events[0];
  }

  /** The increase per second of a counter over the last 5 seconds; null while there is only one event. */
  rate(group, name) {
    const base = this.#before(RATE_WINDOW_MS);
    const seconds = (this.latest.server.uptime_ms - base.server.uptime_ms) / 1000;
    if (seconds <= 0) return null;
    return ((this.latest[group][name] ?? 0) - (base[group][name] ?? 0)) / seconds;
  }

  /** The increase of a counter since the oldest event. `coveredMs` is the time since then. */
  increase(group, name) {
    const base = this.#events[0];
    return (this.latest[group][name] ?? 0) - (base[group][name] ?? 0);
  }

  get coveredMs() {
    return this.latest.server.uptime_ms - this.#events[0].server.uptime_ms;
  }

  /** Quantiles of a histogram over the last `windowMs`; null if it has no new samples. */
  quantiles(histogram, windowMs = QUANTILE_WINDOW_MS) {
    const end = histogram(this.latest);
    const start = histogram(this.#before(windowMs));
    if (!end || !start || this.#events.length < 2) return null;
    const counts = end.counts.map((value, index) => value - (start.counts[index] ?? 0));
    const total = counts.reduce((sum, value) => sum + value, 0);
    if (total <= 0) return null;
    const bounds = this.latest.bounds_ns;
    return {
      total,
      p01: quantile(counts, bounds, 0.01 * total),
      p50: quantile(counts, bounds, 0.5 * total),
      p99: quantile(counts, bounds, 0.99 * total),
    };
  }
}

export const waits = (event) => event.durations.wait;
export const holds = (event) => event.durations.hold;
export const handovers = (event) => event.durations.handover;
export const renewSlack = (event) => event.durations.renew_slack;
export const syncs = (event) => event.log?.sync;
export const quorumRequests = (event) => event.quorum?.request;

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Whether the server has restarted between two events: a counter or the uptime fell. */
function restarted(last, event) {
  if (event.server.uptime_ms < last.server.uptime_ms) return true;
  const fell = (group) => Object.entries(last[group]).some(([name, value]) => (event[group][name] ?? 0) < value);
  return fell("acquires") || fell("lost") || fell("rejected");
}

/** The value below which `rank` samples lie, interpolated within its bucket. */
function quantile(counts, bounds, rank) {
  let below = 0;
  for (let index = 0; index < counts.length; index += 1) {
    if (counts[index] > 0 && below + counts[index] >= rank) {
      const low = index === 0 ? 0 : bounds[index - 1];
      const high = bounds[index] ?? bounds.at(-1);
      return low + ((high - low) * (rank - below)) / counts[index];
    }
    below += counts[index];
  }
  return bounds.at(-1);
}
