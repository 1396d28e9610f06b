// What programs with node-redis and ioredis do, on the port that is their argument.
const assert = require("node:assert");
const { createClient } = require("redis");
const Redis = require("ioredis");

const port = Number(process.argv[2]);

async function nodeRedis(RESP) {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, RESP, name: "tests" });
  await client.connect();
  assert.strictEqual(await client.ping(), "PONG");
  const throttle = (key, ...numbers) => client.sendCommand(["CL.THROTTLE", key, ...numbers.map(String)]);
  assert.deepStrictEqual(await throttle(`node${RESP}`, 1, 1, 60), [0, 2, 1, -1, 60]);
  assert.deepStrictEqual(await throttle(`node${RESP}`, 1, 1, 60, 3), [1, 2, 1, -1, 60]);
  // What is asked without waiting travels in one pipeline.
  const replies = await Promise.all(Array.from({ length: 200 }, () => throttle(`piped${RESP}`, 149, 1, 60)));
  assert.deepStrictEqual(replies.map((reply) => reply[0]), [...Array(150).fill(0), ...Array(50).fill(1)]);
  await assert.rejects(throttle("k", "x", 1, 60), /Couldn't parse as integer: x/);
  await client.close();
}

async function ioredis() {
  const client = new Redis({ port, connectionName: "tests" });
  assert.strictEqual(await client.ping(), "PONG");
  assert.deepStrictEqual(await client.call("CL.THROTTLE", "io", 1, 1, 60), [0, 2, 1, -1, 60]);
  const pipeline = client.pipeline();
  for (let index = 0; index < 100; index++) pipeline.call("CL.THROTTLE", "iopiped", 49, 1, 60);
  const limited = (await pipeline.exec()).map(([error, reply]) => { assert.ifError(error); return reply[0]; });
  assert.deepStrictEqual(limited, [...Array(50).fill(0), ...Array(50).fill(1)]);
  await assert.rejects(client.call("CL.THROTTLE", "k"), /Usage: cl.throttle/);
  await client.quit();
}

(async () => {
  await nodeRedis(2);
  await nodeRedis(3);
  await ioredis();
})().catch((error) => { console.error(error); process.exit(1); });
