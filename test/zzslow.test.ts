import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connect } from 'node:net'
import { systemClock } from '/work/wt/F/src/base/clock.ts'
import { RequesterCounters } from '/work/wt/F/src/exec/counters.ts'
import { Fanouts } from '/work/wt/F/src/exec/fleet/fanouts.ts'
import { NO_LABELS } from '/work/wt/F/src/protocol/labels.ts'
import { runOutcome } from '/work/wt/F/test/support/exit-event.ts'
import { OTHER_AGENT, startDoor, TOKEN } from '/work/wt/F/test/support/rest-door.ts'
import { setTimeout as sleep } from 'node:timers/promises'
for (const [via, rate] of [['tcp', 8192], ['tcp', 65536], ['unix', 8192]] as const)
test(`${via} ${rate}`, { concurrency: true }, async (t) => {
  let stop = false
  let taken = 0
  const fanouts = new Fanouts({ clock: systemClock, counters: new RequesterCounters(),
    executor: { proveFanout: async () => assert.fail('x'), fanoutOver: async () => undefined },
    runner: { cancel: () => { stop = true }, run: async ({ request_id = '', agent_id }: any, sink: any) => { let seq = 0; while (!stop) { await sink.event({ type: 'stdout', request_id, seq: seq++, data: new Uint8Array(48 * 1024) }); taken++; await new Promise(setImmediate) } ; return runOutcome({ ok: false, request_id, agent_id, code: null, signal: 15, warnings: ['cancelled'] }) } } as any })
  const door = await startDoor(t, { fanouts, directory: { resolve: (a: any) => a, select: () => [{ host: 'web1', agent_id: OTHER_AGENT, labels: NO_LABELS, trust: 'trusted' as const }] } } as any)
  const sock = via === 'tcp' ? connect(door.port, '127.0.0.1') : connect(door.socketPath)
  const body = JSON.stringify({ hosts: ['web1'], argv: ['x'], deadline_ms: 3000 })
  sock.write(`POST /exec/fanout HTTP/1.1\r\nHost: ${via === 'tcp' ? `127.0.0.1:${door.port}` : 'localhost'}\r\nAuthorization: Bearer ${TOKEN}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  sock.on('error', (e) => console.log(via, rate, 'err', e.message))
  const start = Date.now()
  let got = 0, closed = 0, ledger = 0
  sock.on('close', () => { closed = Date.now() - start })
  sock.pause()
  await sleep(4000)
  console.log(via, rate, 'taken events', taken, 'KiB', taken * 64, fanouts.sessions().length)
  // slow reading
  const t0 = Date.now()
  while (Date.now() - t0 < 150_000 && !closed && !ledger) {
    let want = rate / 4
    while (want > 0) { const c = sock.read(Math.min(want, 1024)); if (c === null) { sock.read(0); break } got += c.length; want -= c.length; if (c.includes('"ledger"')) ledger = 1 }
    await sleep(250)
    if (fanouts.sessions().length === 0 && !ledger && (Date.now() - t0) % 5000 < 300) console.log(via, rate, 'no session', got, Date.now() - t0)
  }
  console.log(via, rate, 'END got', got, 'closed', closed, 'ledger', ledger, 'after', Date.now() - t0)
  sock.destroy()
})
