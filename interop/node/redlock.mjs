// A node-redlock client that is driven over pipes, in the words of distlock-worker: JSON requests on standard input,
// answers on standard output. Arguments: host:port of each server.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";

// From where the packages were installed.
const require = createRequire(process.env.NODE_HOME + "/");
const Redis = require("ioredis");
const Redlock = require("redlock").default;

const nodes = process.argv.slice(2).map((address) => {
  const [host, port] = address.split(":");
  // A server that is gone fails its requests at once.
  const node = new Redis({ host, port: Number(port), maxRetriesPerRequest: 0 });
  return node.on("error", () => {});
});
const redlock = new Redlock(nodes, { retryCount: 0 });
redlock.on("error", () => {});
const holds = new Map();
let next = 1;

async function acquire(ask) {
  const deadline = ask.wait_ms === null ? Infinity : Date.now() + ask.wait_ms;
  for (;;) {
    try {
      const lock = await redlock.acquire([ask.key], ask.ttl_ms);
      holds.set(next, lock);
      return { answer: "granted", hold: next++ };
    } catch {
      if (Date.now() >= deadline) {
        const kind = ask.wait_ms === 0 ? "busy" : "timeout";
        return { answer: "failed", kind, message: "not obtained" };
      }
      await new Promise((done) => setTimeout(done, 20 + Math.random() * 80));
    }
  }
}

async function isHeld(lock) {
  const values = await Promise.allSettled(nodes.map((node) => node.get(lock.resources[0])));
  return values.filter(({ value }) => value === lock.value).length > nodes.length / 2;
}

async function perform(ask) {
  if (ask.do === "acquire") return acquire(ask);
  const lock = holds.get(ask.hold);
  if (ask.do === "held") return { answer: (await isHeld(lock)) ? "yes" : "no" };
  holds.delete(ask.hold);
  const held = await isHeld(lock);
  await redlock.release(lock).catch(() => {});
  return { answer: held ? "yes" : "no" };
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  const ask = JSON.parse(line);
  let answer;
  try {
    answer = await perform(ask);
  } catch (error) {
    answer = { answer: "failed", kind: "unavailable", message: String(error) };
  }
  console.log(JSON.stringify({ id: ask.id, ...answer }));
});
