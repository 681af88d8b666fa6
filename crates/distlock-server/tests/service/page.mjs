// Looks at the page of a gateway as a person does, in a headless browser that is spoken to over a pipe.
// page.mjs BROWSER OPEN GUARDED READER-TOKEN DIRECTORY: the URLs of two gateways, of which the second asks for tokens.
// Prints "down" when the first is to be stopped and "up" when it is to be started again, "take" and "leave" when a lock is
// to be taken on its engine and given back; each is answered by a line.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import readline from "node:readline";

const [browser, open, guarded, reader, directory] = process.argv.slice(2);
const profile = directory + "/profile";
const chromium = spawn(browser, [
  "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir=" + profile, "about:blank",
], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
process.on("exit", () => chromium.kill("SIGKILL"));
chromium.on("exit", (code) => { console.error("the browser ended: " + code); process.exit(1); });

const pending = new Map();
let number = 0;
let text = "";
chromium.stdio[4].setEncoding("utf8").on("data", (data) => {
  text += data;
  let end;
  while ((end = text.indexOf("\0")) >= 0) {
    const message = JSON.parse(text.slice(0, end));
    text = text.slice(end + 1);
    const done = pending.get(message.id);
    pending.delete(message.id);
    if (message.error) done?.[1](new Error(JSON.stringify(message.error))); else done?.[0](message.result);
  }
});
let sessionId;
const tell = (method, params = {}) => new Promise((...done) => {
  pending.set(++number, done);
  chromium.stdio[3].write(JSON.stringify({ id: number, method, params, sessionId }) + "\0");
});
const { targetId } = await tell("Target.createTarget", { url: "about:blank" });
sessionId = (await tell("Target.attachToTarget", { targetId, flatten: true })).sessionId;
await tell("Page.enable");

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
async function evaluate(expression) {
  const { result, exceptionDetails } = await tell("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(expression + ": " + JSON.stringify(exceptionDetails));
  return result.value;
}
async function until(expression, limit = 15000) {
  const start = Date.now();
  while (!(await evaluate(expression).catch(() => false))) {
    if (Date.now() - start > limit) throw new Error(`not within ${limit} ms: ${expression}\n` + await evaluate("document.body.innerText"));
    await wait(15);
  }
  return Date.now() - start;
}
async function go(url) {
  await tell("Page.navigate", { url });
  await until("document.readyState === 'complete' && typeof render === 'function'");
}
async function look(name, { width = 1280, height = 860, dark = false } = {}) {
  await tell("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
  await tell("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
  await wait(150);
  const wide = await evaluate("document.documentElement.scrollWidth");
  assert.ok(wide <= width, `${name}: the page is ${wide} wide, the window ${width}`);
  writeFileSync(`${directory}/${name}.png`, (await tell("Page.captureScreenshot", { format: "png" })).data, "base64");
}
async function key(name) {
  const code = { Escape: 27, Enter: 13, ArrowDown: 40, "/": 191, b: 66 }[name];
  const printed = name.length === 1 ? { text: name } : name === "Enter" ? { text: "\r" } : {};
  await tell("Input.dispatchKeyEvent", { type: "keyDown", key: name, windowsVirtualKeyCode: code, ...printed });
  await tell("Input.dispatchKeyEvent", { type: "keyUp", key: name, windowsVirtualKeyCode: code });
}
const type = (words) => tell("Input.insertText", { text: words });

async function ask(path, body, headers = {}) {
  const reply = await fetch(open + path, { method: "POST", body: JSON.stringify(body), headers });
  return { status: reply.status, body: await reply.json() };
}
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function host(word) {
  console.log(word);
  await lines.next();
}
const shown = (words) => `document.querySelector('#locks').innerText.includes(${JSON.stringify(words)})`;

// Nothing is there.
await go(open + "/");
await until("document.querySelector('#status').className.includes('live')");
await until("document.querySelector('#empty').innerText.includes('No lock is in use')");
await look("empty");

// A lock appears within a second, and leaves within one.
const evil = "<img src=x onerror=window.pwned=1>";
await ask("/v1/locks/warm/acquire", { ttl: "60s" });
await until(shown("warm"));
const first = await ask("/v1/locks/order%3Aclose%3A42/acquire", { ttl: "60s", label: "billing-2", reason: "month end " + evil });
assert.equal(first.status, 200);
let took = await until(shown("order:close:42"), 5000);
assert.ok(took <= 1000, `the lock appeared after ${took} ms`);
assert.equal(await evaluate("window.pwned"), undefined);
await until(shown(evil));
const warm = await fetch(open + "/v1/locks/warm/acquire", { method: "POST" });
assert.equal(warm.status, 409);

// So does one that another process takes on the engine itself, as the command does.
await host("take");
took = await until(shown("taken-directly"), 5000);
assert.ok(took <= 1000, `the lock taken directly appeared after ${took} ms`);
await host("leave");
took = await until("!" + shown("taken-directly"), 5000);
assert.ok(took <= 1000, `the lock taken directly left after ${took} ms`);

// Waiters in order, and the lock's own page, by keyboard alone.
const line = ["shop-1", "shop-2", "shop-3"].map((label) => () => ask("/v1/locks/order%3Aclose%3A42/acquire", { wait: "50s", ttl: "60s", order: "fifo", label }));
const waiting = [];
for (const [i, join] of line.entries()) {
  waiting.push(join());
  await until(`state.locks.find((lock) => lock.key === 'order:close:42').waiters.length === ${i + 1}`);
}
for (let i = 0; i < 6; i++) {
  await ask(`/v1/locks/report%3A${i}/acquire`, { ttl: `${20 + 30 * i}s`, label: `worker-${i}`, reason: ["nightly report", "rebuild of the index", "", "import of prices", "", "backup"][i] });
}
await ask("/v1/locks/pool/acquire", { ttl: "2m", mode: "semaphore", permits: 3, label: "crawler" });
await ask("/v1/locks/config/acquire", { ttl: "2m", mode: "read", label: "web-1" });
await ask("/v1/locks/gone/acquire", { ttl: "200ms", label: "importer" });
await ask("/v1/locks/gone/acquire", { ttl: "2m", wait: "10s", label: "importer-2" });
await until(shown("pool"));
await until("document.querySelector('#losses').innerText.includes('gone')");
await look("light");
await look("dark", { dark: true });
await look("phone", { width: 390, height: 844 });
await look("phone-dark", { width: 390, height: 844, dark: true });
await look("light");
await key("/");
assert.equal(await evaluate("document.activeElement.id"), "search");
await type("billing");
await until("document.querySelectorAll('#locks li').length === 1");
await key("ArrowDown");
await key("Enter");
await until("document.querySelector('#key').textContent === 'order:close:42' && !document.querySelector('#lock').hidden");
await until("[...document.querySelectorAll('#waiters .who')].map((who) => who.textContent).join() === 'shop-1,shop-2,shop-3'");
await look("lock");
await look("lock-phone", { width: 390, height: 844 });
await look("lock-dark", { dark: true });

// A break, by keyboard.
await key("b");
await until("document.querySelector('#ask-break').open && document.activeElement.id === 'break-reason'");
await type("the host is down");
await evaluate("document.querySelector('#break-grace').value = '0s'");
await look("break");
await key("Enter");
await until("!document.querySelector('#ask-break').open");
const next = await waiting[0];
assert.equal(next.status, 200);
await until("document.querySelector('#holders').innerText.includes('shop-1')");
await until("document.querySelector('#history').innerText.includes('the host is down')");
const lost = await ask("/v1/locks/order%3Aclose%3A42/renew", { handle: first.body.handle });
assert.equal(lost.body.break_reason, "the host is down");

// Released by all, it leaves the list within a second.
await key("Escape");
await until("location.hash === '#/'");
for (const one of waiting) {
  const lease = (await one).body;
  assert.equal((await ask("/v1/locks/order%3Aclose%3A42/release", { handle: lease.handle })).status, 200);
}
await key("Escape");
await evaluate("document.querySelector('#search').value = ''");
took = await until("!" + shown("order:close:42"), 5000);
assert.ok(took <= 1000, `the lock left after ${took} ms`);

// Without the gateway, and with it again.
await host("down");
await until("document.querySelector('#status').innerText === 'disconnected' && !document.querySelector('#banner').hidden");
await look("disconnected");
await host("up");
await until("document.querySelector('#status').className.includes('live') && document.querySelector('#banner').hidden");

// Where tokens are asked for.
await go(guarded + "/");
await until("document.querySelector('#ask-token').open");
await look("token");
await evaluate(`document.querySelector('#token-text').value = 'no such token, and long enough'`);
await evaluate("document.querySelector('#ask-token form').requestSubmit()");
await until("document.querySelector('#token-problem').textContent.includes('not known')");
await evaluate(`document.querySelector('#token-text').value = '${reader}'`);
await evaluate("document.querySelector('#ask-token form').requestSubmit()");
await until("document.querySelector('#status').className.includes('live')");
await until(shown("secret"));
assert.equal(await evaluate("document.cookie"), "");
await evaluate("location.hash = '#/lock/secret'");
await until("document.querySelector('#holders').innerText.includes('admin')");
assert.equal(await evaluate("document.querySelector('#break').hidden"), true);
const refused = await evaluate("ask('/v1/locks/secret/break', { body: { reason: 'x' } }).then(() => 0, (problem) => problem.status)");
assert.equal(refused, 403);
console.log("done");
process.exit(0);
