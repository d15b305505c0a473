// What a program does with the types that openapi-typescript has generated, and openapi-fetch.
//
// `node client.js SERVER USER PASSWORD` prints what it has seen, as JSON.

import createClient from "openapi-fetch";
import type { components, paths } from "./atp.js";

type Instance = components["schemas"]["Instance"];

const [server, user, password] = process.argv.slice(2);
const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
const api = createClient<paths>({ baseUrl: server, headers: { authorization } });

/** Return the data of an answer; throw its problem if there is none. */
function read<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

function single<T>(value: T | T[]): T {
  if (Array.isArray(value)) throw new Error("an array for a single call");
  return value;
}

async function follow(uuid: string): Promise<Instance> {
  for (;;) {
    const params = { path: { uuid }, query: { wait: 60 } };
    const instance = read(await api.GET("/atp/api/instances/{uuid}", { params }));
    if (instance.state === "FINISHED" || instance.state === "FAILED") return instance;
  }
}

const first = single(
  read(
    await api.POST("/atp/api/instances", {
      body: { type: "daemon.answer", inputs: { kind: "bytes", size: 3 } },
    }),
  ),
);
const more = read(
  await api.POST("/atp/api/instances", {
    body: [
      { type: "tests.add", inputs: [1, 2], identifier: "one" },
      { type: "tests.add", inputs: [3, 4], run_after: 3600 },
    ],
  }),
);
if (!Array.isArray(more)) throw new Error("no array for an array of calls");
const [one, later] = more as [Instance, Instance];

const ended = await follow(first.uuid);
const ofFirst = { params: { path: { uuid: first.uuid } } };
const bytes = read(
  await api.GET("/atp/api/instances/{uuid}/response", { ...ofFirst, parseAs: "arrayBuffer" }),
);

const ofLater = { params: { path: { uuid: later.uuid } } };
const changed = read(
  await api.PATCH("/atp/api/instances/{uuid}", { ...ofLater, body: { priority: 7 } }),
);
const removed = read(await api.DELETE("/atp/api/instances/{uuid}", ofLater));
const gone = await api.GET("/atp/api/instances/{uuid}", ofLater);

const uuids: string[] = [];
for (let page: string | null | undefined; page !== null; ) {
  const query = page === undefined ? { limit: 1 } : { limit: 1, page };
  const answer = read(await api.GET("/atp/api/instances", { params: { query } }));
  uuids.push(...answer.results.map((each) => each.uuid));
  page = answer.next_page;
}

console.log(
  JSON.stringify({
    new: [first, one, later].map((each) => each.is_new),
    state: ended.state,
    bytes: [...new Uint8Array(bytes)],
    priority: changed.priority,
    removed: removed.uuid === later.uuid,
    problem: gone.error?.status,
    pages: JSON.stringify(uuids) === JSON.stringify([one.uuid, first.uuid]),
  }),
);
