// The page of a gateway: follows the locks, shows one, breaks one. What others wrote (keys, labels, reasons) is only
// ever set as text.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { locks: null, more: false, at: 0, engine: null, activity: null, lock: null, live: false };
const token = () => sessionStorage.getItem("distlock-token");
const namespace = () => new URLSearchParams(location.search).get("namespace");

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

// ---- asking the gateway

function address(path, query = {}) {
  const params = new URLSearchParams(query);
  if (namespace() !== null) params.set("namespace", namespace());
  const text = params.toString();
  return path + (text ? "?" + text : "");
}

class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || "status " + status);
    this.status = status;
  }
}

async function ask(path, { query, body, signal } = {}) {
  const headers = {};
  if (token()) headers.authorization = "Bearer " + token();
  if (body) headers["content-type"] = "application/json";
  const reply = await fetch(address(path, query), {
    method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store",
  });
  if (reply.ok) return reply;
  const text = await reply.text();
  let problem = {};
  try { problem = JSON.parse(text); } catch { /* an answer of something in between */ }
  throw new Problem(reply.status, problem);
}

// ---- following the locks

let pause = 500;
let following = null;
let looking = 0;

async function follow() {
  following = new AbortController();
  const own = following;
  try {
    state.engine = await (await ask("/v1/engine", { signal: own.signal })).json();
    shown();
    look();
    const reply = await ask("/v1/watch", { signal: own.signal });
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let heard = Date.now();
    // The gateway says something each ten seconds; silence means that it is gone.
    const watchdog = setInterval(() => Date.now() - heard > 25000 && own.abort(), 2000);
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard = Date.now();
        text += value;
        let end;
        while ((end = text.indexOf("\n\n")) >= 0) {
          told(text.slice(0, end));
          text = text.slice(end + 2);
        }
      }
    } finally { clearInterval(watchdog); }
    offline("The gateway ended the connection.");
  } catch (problem) {
    if (own !== following) return;
    if (problem.status === 401) { signIn(token() ? "This token is not known, or was withdrawn." : ""); offline("A token is needed.", false); return; }
    if (problem.status === 403) { offline(problem.message, false); return; }
    offline(problem.status ? problem.message : "The gateway cannot be reached.");
  }
  if (own !== following) return;
  setTimeout(() => own === following && follow(), pause);
  pause = Math.min(pause * 1.7, 5000);
}

function restart() {
  following?.abort();
  following = null;
  pause = 500;
  Object.assign(state, { locks: null, activity: null, lock: null });
  looking++;
  render();
  follow();
}

function told(event) {
  const name = /^event: (.*)$/m.exec(event)?.[1];
  const data = /^data: (.*)$/m.exec(event)?.[1];
  if (!name || !data) return;
  const body = JSON.parse(data);
  if (name === "trouble") { offline("The engine cannot be asked: " + body.detail, true, true); return; }
  if (name !== "locks") return;
  Object.assign(state, { locks: body.locks, more: body.more, at: Date.now(), live: true });
  pause = 500;
  $("banner").hidden = true;
  status("live", "live");
  render();
}

function status(kind, text) {
  $("status").className = "status " + kind;
  $("status").lastElementChild.textContent = text;
}

function offline(why, again = true, engine = false) {
  state.live = false;
  status("off", engine ? "engine trouble" : "disconnected");
  $("banner").hidden = false;
  $("banner").textContent = why + (again ? " What is shown is what was known last; trying again…" : "");
  render();
}

// What is asked for now and then: history, and the lock that is looked at.
async function look() {
  const own = ++looking;
  while (own === looking) {
    const key = chosen();
    try {
      if (state.engine) {
        const query = key === null ? {} : { key };
        state.activity = await (await ask("/v1/activity", { query })).json();
        if (key !== null) {
          const lock = await (await ask("/v1/locks/" + encodeURIComponent(key))).json();
          if (lock.key === key) state.lock = { lock, at: Date.now() };
        }
        if (own === looking) render();
      }
    } catch { /* the stream of events says that the gateway is gone */ }
    await new Promise((done) => setTimeout(done, key === null ? 2000 : 800));
  }
}

// ---- showing

function duration(ms) {
  if (ms === null || ms === undefined) return "";
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.floor(s / 60) + " min";
  if (s < 172800) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " d";
}

const since = (person) => person.since_ms ? duration(Date.now() - person.since_ms) : "";
const name = (person) => person.label || (person.pid ? "pid " + person.pid : person.owner.slice(0, 12) || "somebody");
const from = (person) => [person.pid && "pid " + person.pid, person.host && "on " + person.host].filter(Boolean).join(" ");

// The longest lease that was seen of a holder, so that its bar has a scale.
const longest = new Map();
function lease(person, at) {
  if (person.expires_in_ms === null) return el("span", { class: "lease" });
  const left = person.expires_in_ms - (Date.now() - at);
  const most = Math.max(longest.get(person.owner) || 0, person.expires_in_ms, 1000);
  longest.set(person.owner, most);
  if (longest.size > 5000) longest.clear();
  const bar = el("progress", { max: most, value: Math.max(0, left), class: left < most * 0.25 ? "low" : "" });
  bar.setAttribute("aria-label", "time left");
  return el("span", { class: "lease num", title: "until the lease ends unless it is renewed" }, duration(left) + " left", bar);
}

function kind(lock) {
  if (lock.kind === "semaphore") return lock.permits ? `${lock.holders.length} of ${lock.permits} permits` : "semaphore";
  if (lock.kind === "read_write") {
    if (lock.holders.some((h) => h.mode === "read")) return lock.holders.length === 1 ? "1 reader" : lock.holders.length + " readers";
    return "writer";
  }
  return lock.kind || "";
}

function row(lock, at) {
  const first = lock.holders[0];
  const more = lock.holders.length - 1;
  const line = lock.waiters.map((waiter, i) => `${i + 1}. ${name(waiter)}`).join("\n");
  const n = lock.waiters.length;
  return el("li", {}, el("a", { href: "#/lock/" + encodeURIComponent(lock.key), "data-key": lock.key },
    el("span", {}, el("div", { class: "key" }, lock.key), lock.kind !== "mutex" && kind(lock) ? el("span", { class: "badge" }, kind(lock)) : null),
    el("span", { class: "holder" },
      el("div", { class: "who" }, first ? name(first) + (more > 0 ? ` and ${more} more` : "") : "free"),
      first?.reason ? el("div", { class: "sub" }, first.reason) : null),
    el("span", { class: "held num" }, first ? since(first) : ""),
    first ? lease(first, at) : el("span"),
    el("span", { class: "count" + (n ? "" : " none"), title: line, "aria-label": n + " waiting" }, n ? String(n) : "–")));
}

function matches(lock, text) {
  const words = [lock.key, ...lock.holders.concat(lock.waiters).flatMap((p) => [p.label, p.reason, p.host])];
  return words.some((word) => word && word.toLowerCase().includes(text));
}

// Puts rows in place of those before, without taking the focus away.
function replace(list, rows) {
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  list.replaceChildren(...rows);
  if (focused !== null && focused !== undefined) {
    [...list.querySelectorAll("[data-key]")].find((node) => node.dataset.key === focused)?.focus({ preventScroll: true });
  }
}

const nothing = (text) => el("li", { class: "none-yet" }, text);

function when(ms) {
  const ago = Date.now() - ms;
  return ago < 60000 ? duration(ago) + " ago" : new Date(ms).toLocaleTimeString();
}

function happened(event, withKey) {
  const text = [event.label, event.reason, event.by && "by " + event.by].filter(Boolean).join(" · ");
  return el("li", {},
    el("time", { class: "num", datetime: new Date(event.at_ms).toISOString() }, when(event.at_ms)),
    el("span", {}, el("span", { class: "what " + event.what }, event.what), withKey ? " " : null,
      withKey ? el("a", { class: "key", href: "#/lock/" + encodeURIComponent(event.key) }, event.key) : null),
    text ? el("span", { class: "sub why" }, text) : null);
}

function bars(classes) {
  const label = (ms) => ms === null ? "more" : ms < 1000 ? "≤" + ms + "ms" : "≤" + ms / 1000 + "s";
  const most = Math.max(1, ...classes.map((c) => c.count));
  const all = classes.reduce((sum, c) => sum + c.count, 0);
  $("waits").setAttribute("aria-label", classes.map((c) => `${label(c.up_to_ms)}: ${c.count}`).join(", "));
  $("waits").replaceChildren(...classes.map((c) => {
    const box = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    box.setAttribute("viewBox", "0 0 10 76");
    box.setAttribute("preserveAspectRatio", "none");
    for (const [css, height] of [["base", 76], ["", c.count ? Math.max(3, 76 * c.count / most) : 0]]) {
      const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [key, value] of Object.entries({ x: 0, width: 10, y: 76 - height, height, class: css })) rect.setAttribute(key, value);
      box.append(rect);
    }
    const share = all ? Math.round(100 * c.count / all) : 0;
    return el("div", { title: `${label(c.up_to_ms)}: ${c.count} (${share} %)` }, box, label(c.up_to_ms).replace("≤", "").replace("ms", "").replace("more", "∞"));
  }));
}

function overview() {
  const locks = state.locks;
  const text = $("search").value.trim().toLowerCase();
  $("locks").setAttribute("aria-busy", String(locks === null));
  if (locks === null) {
    $("locks").replaceChildren(...[0, 1, 2, 3].map(() => el("li", { class: "ghost" })));
    $("empty").hidden = true;
  } else {
    const found = locks.filter((lock) => !text || matches(lock, text));
    replace($("locks"), found.map((lock) => row(lock, state.at)));
    $("empty").hidden = found.length > 0;
    if (text) $("empty").replaceChildren(el("strong", {}, "Nothing matches"), `None of ${locks.length} locks has “${text}” in its key, holder or reason.`);
    else $("empty").replaceChildren(el("strong", {}, "No lock is in use"), el("div", {}, "One that is taken appears here within a second."), el("code", {}, `curl -d '{"ttl": "30s"}' ${location.origin}/v1/locks/demo/acquire`));
    if (state.more) $("locks").append(nothing("… and more than can be shown here"));
    const waiting = locks.map((lock) => lock.waiters.length);
    $("n-held").textContent = locks.filter((lock) => lock.holders.length).length + (state.more ? "+" : "");
    $("n-waiting").textContent = waiting.reduce((a, b) => a + b, 0);
    $("n-busiest").textContent = Math.max(0, ...waiting);
  }
  const seen = state.activity;
  if (!seen) return;
  $("n-lost").textContent = seen.losses.length;
  const most = Math.max(1, ...seen.contended.map((c) => c.waits));
  $("contended").replaceChildren(...(seen.contended.length ? seen.contended.slice(0, 8).map((c) => el("li", {},
    el("a", { href: "#/lock/" + encodeURIComponent(c.key) }, c.key),
    el("span", { class: "sub num", title: "waited in all: " + duration(c.waited_ms) }, `${c.waits}×`),
    el("progress", { max: most, value: c.waits, "aria-label": "share" }))) : [nothing("Nobody had to wait yet.")]));
  bars(seen.waits);
  $("losses").replaceChildren(...(seen.losses.length ? seen.losses.slice(0, 8).map((e) => happened(e, true)) : [nothing("None. Every lock was given back by its holder.")]));
}

function person(p, at, holds) {
  return el("li", {},
    el("span", {}, el("span", { class: "who" }, name(p)), " ", p.mode !== "mutex" ? el("span", { class: "badge" }, p.mode) : null,
      el("div", { class: "sub" }, p.reason || ""), from(p) ? el("div", { class: "sub" }, from(p)) : null),
    el("span", { class: "sub num" }, since(p) ? (holds ? "for " : "waits ") + since(p) : "", p.token !== null && holds ? el("div", {}, "token " + p.token) : null),
    holds ? lease(p, at) : null);
}

function detail(key) {
  $("key").textContent = key;
  const known = state.lock?.lock.key === key ? state.lock : null;
  const listed = state.locks?.find((lock) => lock.key === key);
  const { lock, at } = known || { lock: listed, at: state.at };
  const may = state.engine?.may || [];
  $("break").hidden = !may.includes("break");
  $("break").disabled = !lock?.holders.length;
  $("kind").textContent = lock ? kind(lock) : "";
  $("kind").hidden = !$("kind").textContent;
  if (!lock) {
    const text = state.locks === null ? "Loading…" : "Nobody.";
    $("holders").replaceChildren(nothing(text));
    $("waiters").replaceChildren(nothing(text));
  } else {
    $("holders").replaceChildren(...(lock.holders.length ? lock.holders.map((p) => person(p, at, true)) : [nothing("Nobody: the lock is free.")]));
    $("waiters").replaceChildren(...(lock.waiters.length ? lock.waiters.slice(0, 200).map((p) => person(p, at, false)) : [nothing("Nobody.")]));
  }
  const events = (state.activity?.events || []).filter((e) => e.key === key);
  $("history").replaceChildren(...(events.length ? events.slice(0, 40).map((e) => happened(e, false)) : [nothing("Nothing yet.")]));
}

function chosen() {
  const found = /^#\/lock\/(.+)$/.exec(location.hash);
  if (!found) return null;
  try { return decodeURIComponent(found[1]); } catch { return null; }
}

function render() {
  const key = chosen();
  $("overview").hidden = key !== null;
  $("lock").hidden = key === null;
  if (key === null) overview(); else detail(key);
  document.title = key === null ? "distlock" : key + " – distlock";
}

function shown() {
  $("engine").textContent = state.engine.engine || state.engine.promises.name;
  if (document.activeElement !== $("namespace")) $("namespace").value = state.engine.namespace;
  $("token").hidden = state.engine.caller === "anonymous";
  $("token").textContent = state.engine.caller === "anonymous" ? "" : state.engine.caller;
}

// ---- doing

function signIn(why) {
  $("token-problem").textContent = why;
  $("token-text").value = "";
  if (!$("ask-token").open) $("ask-token").showModal();
}

$("ask-token").querySelector("form").addEventListener("submit", () => {
  sessionStorage.setItem("distlock-token", $("token-text").value.trim());
  restart();
});
$("token").addEventListener("click", () => signIn(""));

$("break").addEventListener("click", () => {
  $("break-key").textContent = chosen();
  $("break-problem").textContent = "";
  $("break-reason").value = "";
  $("ask-break").showModal();
  $("break-reason").focus();
});

$("ask-break").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = chosen();
  const holder = state.lock?.lock.holders.length === 1 ? state.lock.lock.holders[0] : null;
  const body = { reason: $("break-reason").value, grace: $("break-grace").value };
  // What is broken is what was looked at, not who came since.
  if (holder && holder.token !== null) body.expect_token = holder.token;
  $("break-go").disabled = true;
  try {
    await ask("/v1/locks/" + encodeURIComponent(key) + "/break", { body });
    $("ask-break").close();
    look();
  } catch (problem) {
    $("break-problem").textContent = problem.message;
  } finally { $("break-go").disabled = false; }
});

for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());

$("namespace").addEventListener("change", () => {
  const url = new URL(location);
  url.searchParams.set("namespace", $("namespace").value.trim());
  url.hash = "#/";
  history.pushState(null, "", url);
  restart();
});

$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("distlock-theme", document.documentElement.dataset.theme); } catch { /* private mode */ }
});
try {
  const theme = localStorage.getItem("distlock-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* private mode */ }

$("search").addEventListener("input", render);
window.addEventListener("hashchange", () => { state.lock = null; state.activity = null; render(); look(); $("main").focus({ preventScroll: true }); scrollTo(0, 0); });
window.addEventListener("popstate", () => render());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (event.key === "Escape") {
    if (typing) { $("search").value = ""; document.activeElement.blur(); render(); } else if (chosen() !== null) location.hash = "#/";
    return;
  }
  if (typing && document.activeElement !== $("search")) return;
  const rows = [...$("locks").querySelectorAll("a")];
  const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
  if (event.key === "/" && !typing && chosen() === null) { event.preventDefault(); $("search").focus(); }
  else if (event.key === "b" && !typing && !$("break").hidden && !$("break").disabled && chosen() !== null) { event.preventDefault(); $("break").click(); }
  else if (step && rows.length && chosen() === null && !(typing && event.key.length === 1)) {
    event.preventDefault();
    const at = rows.indexOf(document.activeElement);
    rows[Math.min(rows.length - 1, Math.max(0, at + step))].focus();
  }
});

// Times go on while nothing else happens.
setInterval(() => !document.hidden && render(), 1000);
render();
follow();
