// Requests to the server: the token, errors, polling and the live stream.

const BASE = "/console/api/";
const TOKEN = "waymaker-token";

/** An error answer of the server, or a request that got no answer (`status` 0). */
class ApiError extends Error {
  constructor(status, code, message, retryAfterMs = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The token of this tab. It is gone when the tab is closed. */
export const token = {
  get() {
    return sessionStorage.getItem(TOKEN);
  },
  set(value) {
    if (value) sessionStorage.setItem(TOKEN, value);
    else sessionStorage.removeItem(TOKEN);
    events.dispatchEvent(new Event("token"));
  },
};

/** `token`: the token changed, or the operator wants another attempt. `unauthenticated`: the server asks for a token. */
export const events = new EventTarget();

async function request(path, options = {}) {
  const headers = { ...options.headers };
  const credential = token.get();
  if (credential) headers.Authorization = `Bearer ${credential}`;
  let response;
  try {
    response = await fetch(BASE + path, {
      ...options,
      headers,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server did not answer.");
  }
  if (response.ok) return response;
  const failure = await errorOf(response);
  // The answer to a request with an earlier token must not ask for a token again.
  if (failure.status === 401 && credential === token.get()) events.dispatchEvent(new Event("unauthenticated"));
  throw failure;
}

async function errorOf(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // A proxy may answer with a page instead of JSON.
  }
  const message = error?.message ?? `The server answered with status ${response.status}.`;
  return new ApiError(response.status, error?.code ?? "unknown", message, error?.retry_after_ms ?? null);
}

/** Reads a JSON answer. Parameters that are null or undefined are left out. */
export async function get(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  const response = await request(query ? `${path}?${query}` : path, { signal });
  return response.json();
}

/** Sends an action of an operator. */
export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Waymaker-Console": "1" };
  const response = await request(path, { method: "POST", headers, body: JSON.stringify(body) });
  return response.json();
}

/** Resolves after this time; rejects when the signal aborts. */
function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    if (signal?.aborted) end();
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** Resolves when an event of this name arrives; rejects when the signal aborts. */
function next(target, name, signal) {
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    target.addEventListener(name, resolve, { once: true, signal });
  });
}

/**
 * Calls `load` again and again until the signal aborts, and not while the tab is hidden. The pause is `intervalMs`, but
 * at least five times as long as `load` took, so that a slow server is asked less often. After errors the pause doubles
 * up to 15 seconds, or is as long as the server asks; after a 401 it ends with the event `token`. `failed(error)` is
 * called for each error, and with null after the next success. Returns a function that ends the pause.
 */
export function poll(load, intervalMs, signal, failed) {
  let wake = new AbortController();
  const run = async () => {
    let failures = 0;
    while (!signal.aborted) {
      if (document.hidden) await next(document, "visibilitychange", signal);
      if (document.hidden) continue;
      const start = performance.now();
      let pause = intervalMs;
      wake = new AbortController();
      try {
        await load();
        if (failures > 0) failed(null);
        failures = 0;
        pause = Math.max(pause, 5 * (performance.now() - start));
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        failed(error);
        if (error.status === 401) await next(events, "token", signal);
        else pause = Math.max(error.retryAfterMs ?? 0, Math.min(15000, intervalMs * 2 ** failures));
        if (error.status === 401) continue;
      }
      try {
        await sleep(pause, AbortSignal.any([signal, wake.signal]));
      } catch {
        // The loop ends or loads at once.
      }
    }
  };
  run().catch((error) => {
    if (!signal.aborted) throw error;
  });
  return () => wake.abort();
}

/** The stream of server-sent events. It connects again by itself and stops while the tab is hidden. */
export class Live {
  #stop = new AbortController();
  #attempt = 0;
  #waiting = null;
  /** Time of the last event on the clock of `performance.now()`; null before the first event. */
  lastEventAt = null;
  /** `connecting`, `open`, `waiting`, `paused` or `denied`. */
  state = "connecting";
  error = null;
  /** Time of the next attempt in state `waiting`. */
  retryAt = 0;

  constructor(onEvent, onState) {
    this.onEvent = onEvent;
    this.onState = onState;
  }

  start() {
    document.addEventListener("visibilitychange", () => this.#visibility());
    events.addEventListener("token", () => this.reconnect());
    this.#run();
  }

  /** Ends the present connection or pause, and connects at once. */
  reconnect() {
    this.#attempt = 0;
    this.#stop.abort();
    this.#waiting?.abort();
  }

  #visibility() {
    if (document.hidden) this.#stop.abort();
    else this.reconnect();
  }

  #set(state, error = null) {
    this.state = state;
    this.error = error;
    this.onState();
  }

  async #run() {
    for (;;) {
      if (document.hidden) {
        this.#set("paused");
        await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
        continue;
      }
      this.#stop = new AbortController();
      try {
        this.#set("connecting", this.error);
        await this.#read(this.#stop.signal);
        throw new ApiError(0, "closed", "The server closed the connection.");
      } catch (error) {
        if (this.#stop.signal.aborted) continue;
        await this.#pause(error);
      }
    }
  }

  /**
   * Waits before the next attempt: about half a second at first and twice as long after each failure, up to about 15
   * seconds, or as long as the server asks. If the server denies access, waits a minute.
   */
  async #pause(error) {
    const denied = error.status === 401 || error.status === 403;
    const backoff = Math.min(15000, 500 * 2 ** this.#attempt) * (0.75 + Math.random() / 2);
    const pause = denied ? 60000 : Math.max(error.retryAfterMs ?? 0, backoff);
    this.#attempt += 1;
    this.retryAt = performance.now() + pause;
    this.#set(denied ? "denied" : "waiting", error);
    this.#waiting = new AbortController();
    try {
      await sleep(pause, this.#waiting.signal);
    } catch {
      // `reconnect` ends the pause.
    }
  }

  async #read(signal) {
    const response = await request("live", { signal, headers: { Accept: "text/event-stream" } });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { done, value } = await this.#chunk(reader);
      if (done) return;
      buffer += value.replaceAll("\r", "");
      const blocks = buffer.split("\n\n");
      buffer = blocks.pop();
      for (const block of blocks) this.#event(block);
    }
  }

  /** The next chunk. A connection without an event for 10 seconds is dead, although the browser may not know it. */
  #chunk(reader) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reader.cancel().catch(() => {});
        reject(new ApiError(0, "silent", "The server sent nothing for 10 seconds."));
      }, 10000);
      reader
        .read()
        .then(resolve, () => reject(new ApiError(0, "lost", "The connection to the server was lost.")))
        .finally(() => clearTimeout(timer));
    });
  }

  #event(block) {
    const data = block
      .split("\n")
      .filter((line) => line.startsWith("data:"))
      .map((line) => line.slice(5).trimStart())
      .join("\n");
    if (!data) return;
    this.#attempt = 0;
    this.lastEventAt = performance.now();
    if (this.state !== "open") this.#set("open");
    this.onEvent(JSON.parse(data));
  }
}
