#!/usr/bin/env node
// Holds a lock of a distlock service while a command runs, and stops the command if the lock is lost.
//
//     client.mjs URL KEY COMMAND [ARG…]
//
// One file, no dependencies (Node 18 or later): copy it. The lease is DISTLOCK_TTL (30s); the token, if the
// service asks for one, is read from DISTLOCK_TOKEN_FILE. Exit code: the command's own; 75 if the lock is busy for 10 s, 79 if it was lost.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";

export class Busy extends Error {}
export class Lost extends Error {}

/** A lease. It is held until `deadline`, by this process's own clock, however the network is. */
export class Lock {
  static async acquire(url, key, { ttl = "30s", wait = "10s", label = "client.mjs", onLost = () => {} } = {}) {
    const lock = new Lock();
    lock.address = `${url.replace(/\/$/, "")}/v1/locks/${encodeURIComponent(key)}/`;
    lock.onLost = onLost;
    const file = process.env.DISTLOCK_TOKEN_FILE;
    lock.headers = { "content-type": "application/json" };
    if (file) lock.headers.authorization = `Bearer ${readFileSync(file, "utf8").trim()}`;
    // The same request again, after a lost answer, gets the same lease.
    const once = { "idempotency-key": randomUUID() };
    for (let attempt = 0; ; attempt++) {
      let answer;
      try {
        answer = await lock.post("acquire", { ttl, wait, label }, once);
      } catch (e) {
        if (attempt === 2) throw e;
        continue;
      }
      if (answer.status === 409) throw new Busy(answer.body.detail);
      if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.body.detail}`);
      lock.granted(answer);
      lock.token = answer.body.token;
      lock.plan(lock.ttl / 3);
      return lock;
    }
  }

  async post(verb, body, headers = {}) {
    const sent = performance.now();
    const reply = await fetch(this.address + verb, {
      method: "POST",
      headers: { ...this.headers, ...headers },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(75_000),
    });
    return { status: reply.status, body: await reply.json(), sent };
  }

  granted({ body, sent }) {
    this.handle = body.handle;
    this.ttl = body.ttl_ms;
    // Counted from before the request was sent, so that it is never longer than the service keeps the lock.
    this.deadline = sent + body.answered_after_ms + body.valid_for_ms;
  }

  plan(pause) {
    const left = Math.max(0, this.deadline - performance.now());
    this.timer = setTimeout(() => this.keep(), Math.min(pause, left));
  }

  /** Renews at a third of the lease; what cannot be renewed in time is lost. */
  async keep() {
    if (performance.now() >= this.deadline) return this.lose();
    const inTime = new Promise((done) => setTimeout(done, Math.max(0, this.deadline - performance.now()), null).unref());
    const answer = await Promise.race([this.post("renew", { handle: this.handle }).catch(() => null), inTime]);
    if (this.over) return;
    if (answer?.status === 200) {
      this.granted(answer);
      this.plan(this.ttl / 3);
    } else if (answer?.status === 410) {
      this.lose();
    } else {
      // Not known: it is held until the deadline, so ask again soon.
      this.plan(Math.min(1000, this.ttl / 20));
    }
  }

  lose() {
    this.over = true;
    this.onLost();
  }

  async release() {
    this.over = true;
    clearTimeout(this.timer);
    const { status, body } = await this.post("release", { handle: this.handle });
    if (status === 410) throw new Lost(body.detail);
  }
}

async function main() {
  const [url, key, command, ...args] = process.argv.slice(2);
  let child;
  let lost = false;
  let lock;
  try {
    lock = await Lock.acquire(url, key, { ttl: process.env.DISTLOCK_TTL ?? "30s", onLost: () => { lost = true; child?.kill("SIGKILL"); } });
  } catch (e) {
    console.error(e instanceof Busy ? `busy: ${e.message}` : `${e}`);
    return e instanceof Busy ? 75 : 1;
  }
  console.error(`held, fencing token ${lock.token}`);
  child = spawn(command, args, { stdio: "inherit", env: { ...process.env, DISTLOCK_TOKEN: String(lock.token) } });
  const code = await new Promise((done) => child.on("exit", (code) => done(code ?? 1)));
  if (lost) {
    console.error("lost: the command was stopped");
    return 79;
  }
  await lock.release();
  return code;
}

if (process.argv[1] && import.meta.url.endsWith(process.argv[1].split("/").pop())) process.exit(await main());
