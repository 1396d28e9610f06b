// Node's `rate-limiter-flexible` on Redis, as a process that `make bench-redis` commands.
//
//     node flexible_bench.cjs REDIS_URL        (NODE_PATH names its node_modules)
//
// Commands and answers are those of limits_bench.py. One ioredis connection, without
// automatic pipelining, which is slower here. Tiers are a RateLimiterUnion.
'use strict';

const readline = require('node:readline');
const Redis = require('ioredis');
const { RateLimiterRedis, RateLimiterRes, RateLimiterUnion } = require('rate-limiter-flexible');

const client = new Redis(process.argv[2]);
const limiters = new Map();

function limiter(prefix, quotas) {
  const name = `${prefix} ${quotas}`;
  if (!limiters.has(name)) {
    const tiers = quotas.split(',').map((quota) => {
      const [points, duration] = quota.split('/').map(Number);
      const keyPrefix = `${prefix}:${duration}`;
      return new RateLimiterRedis({ storeClient: client, points, duration, keyPrefix });
    });
    limiters.set(name, tiers.length === 1 ? tiers[0] : new RateLimiterUnion(...tiers));
  }
  return limiters.get(name);
}

/** A denial is a rejection with what is left; of a union, with that of each tier that denies. */
function isDenial(reason) {
  return [reason, ...Object.values(reason)].some((each) => each instanceof RateLimiterRes);
}

async function caller(run) {
  let last = performance.now();
  for (;;) {
    const key = run.next();
    if (key === undefined) return;
    try {
      await run.limiter.consume(String(key), run.cost);
      run.admitted += 1;
    } catch (reason) {
      if (!isDenial(reason)) {
        run.failed += 1;
        console.error('rate-limiter-flexible:', reason);
      }
    }
    const now = performance.now();
    run.latencies.push(now - last);
    last = now;
    if (now >= run.end) return;
  }
}

function counter(count, keys) {
  let attempt = 0;
  return () => (attempt < count ? attempt++ % keys : undefined);
}

async function command(line) {
  const [work, amountText, callersText, keysText, prefix, quotas] = line.split(' ');
  const [amount, callers, keys] = [amountText, callersText, keysText].map(Number);
  const next = {
    fill: counter(keys, keys),
    time: () => Math.floor(Math.random() * keys),
    hammer: counter(amount, keys),
  }[work];
  const cpuBefore = process.cpuUsage();
  const start = performance.now();
  const run = {
    limiter: limiter(prefix, quotas),
    cost: work === 'fill' ? amount : 1,
    end: work === 'time' ? start + amount : Infinity,
    latencies: [],
    admitted: 0,
    failed: 0,
    next,
  };
  await Promise.all(Array.from({ length: callers }, () => caller(run)));
  const elapsed = performance.now() - start;
  const cpu = process.cpuUsage(cpuBefore);
  const ordered = Float64Array.from(run.latencies).sort();
  const [p50, p99] = [0.5, 0.99].map((share) => ordered[Math.floor(ordered.length * share)]);
  const times = [elapsed * 1000, p50 * 1000, p99 * 1000, cpu.user + cpu.system].map(Math.round);
  return [ordered.length, run.admitted, run.failed, ...times].join(' ');
}

async function main() {
  const version = (name) => `${name} ${require(`${name}/package.json`).version}`;
  console.log(`Node ${process.versions.node}: ${version('rate-limiter-flexible')}, ${version('ioredis')}`);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await command(line));
  }
  client.disconnect();
}

main();
