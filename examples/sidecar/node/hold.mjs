// Hold a role by the sidecar, and write "ROLE TOKEN" to stdout while it is held.
//
//     RINK_API=127.0.0.1:8181 node hold.mjs ROLE
//
// The stream says that something has changed. A renewal says what is held, and until when.
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http'; // obeys no http_proxy
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const api = `http://${process.env.RINK_API ?? '127.0.0.1:8181'}`;
const role = process.argv[2];
const agent = new Agent();
let grant = '', held = [], changed = false, stopping = false;
process.on('SIGTERM', () => { stopping = true; });

const nowMs = () => Math.round(1000 * parseFloat(readFileSync('/proc/uptime', 'ascii')));

const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
const call = (path, body, timeout = 2000) => new Promise((resolve, reject) => {
  const signal = timeout ? AbortSignal.timeout(timeout) : undefined;
  request(api + path, { method: 'POST', headers, agent, signal }, resolve).on('error', reject).end(JSON.stringify(body));
});

async function follow() { // keep a stream open, and note that something has changed
  for (;;) {
    try {
      const body = grant ? { grant } : { roles: [role], consumer: 'node', alive: 15 };
      const stream = await call('/v1/hold', body, 0);
      if (stream.statusCode === 410) grant = ''; // the sidecar was restarted, or has forgotten us
      for await (const line of createInterface({ input: stream })) {
        const event = line.startsWith('data:') ? JSON.parse(line.slice(5)) : {};
        if (event.role) [grant, changed] = [event.grant, true]; // granted, lost, waiting
      }
    } catch { /* try again */ }
    await sleep(300);
  }
}

async function renew() { // ask what is held, and answer what is lost; no work runs meanwhile
  const asked = nowMs();
  const answer = await call('/v1/renew', { grant });
  let text = '';
  for await (const chunk of answer) text += chunk;
  const read = nowMs();
  if (answer.statusCode !== 200) return;
  held = [];
  for (const turn of JSON.parse(text).held) {
    if (turn.state === 'lost') {
      (await call('/v1/release', { grant: turn.grant, role: turn.role, token: turn.token })).resume();
      continue;
    }
    const isSameClock = asked - 20 <= turn.now_ms && turn.now_ms <= read + 20;
    held.push({ ...turn, end: isSameClock ? turn.until_ms : asked + turn.left_ms });
  }
}

follow();
for (let renewedAt = 0; !stopping || held.some(({ end }) => nowMs() < end); await sleep(100)) {
  if (grant && (changed || nowMs() >= renewedAt + 1000)) {
    changed = false;
    renewedAt = nowMs();
    await renew().catch(() => {}); // the ends that were told bind as before
  }
  for (const { role, token, end } of held) {
    if (nowMs() + 100 < end) console.log(role, token); // before each write
  }
}
process.exit(0);
