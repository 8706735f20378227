import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { startNotified } from '../support/notify-socket.ts'
import { needsPerl } from '../support/perl-programs.ts'
import { until } from '../support/mesh-of-daemons.ts'
import { rexdPlace } from '../support/rexd-server.ts'
import { certificate, withoutOpenssl } from '../support/certificates.ts'
import { tempDir } from '../support/temp-dir.ts'
import { connect as connectTls } from 'node:tls'

// The messages go over a real datagram socket, which Node.js does not offer.

const dist = (name: string): string => fileURLToPath(new URL(`../../dist/${name}`, import.meta.url))
const TIMEOUT = { timeout: 60_000 }
/** An entry that allows more than an ACL without entries. */
const WIDER = `[[exec.allow]]
agent_id = "${'a1'.repeat(32)}"
machine_id = "${'b2'.repeat(32)}"
[[exec.allow.commands]]
argv = ["true"]
`

test(
  'the daemon reports readiness, watchdog and reload results, and restarts a hung network process',
  { ...needsPerl, ...TIMEOUT },
  async (t) => {
    const dir = await tempDir(t)
    const acl = join(dir, 'exec-acl.toml')
    const none = `[exec]\nenabled = true\naudit_log_path = "${join(dir, 'exec.log')}"\n`
    await writeFile(acl, none, { mode: 0o600 })
    const flags = ['--data-dir', dir, '--exec-acl', acl, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
    const env = { ...process.env, WATCHDOG_USEC: '3000000', X0X_MDNS: 'false' }
    const daemon = await startNotified(t, [process.execPath, dist('x0xd.mjs'), ...flags], env)
    const ready = await daemon.says(/READY/)
    assert.match(ready, /^READY=1\|STATUS=agent [0-9a-f]{64}, api 127\.0\.0\.1:\d+, exec enabled, network process up$/)
    assert.match(await readFile(join(dir, 'api.port'), 'utf8'), /^127/, 'who is told so finds it serving')
    await daemon.says(/^WATCHDOG=1$/)
    await daemon.says(/^WATCHDOG=1$/)

    await writeFile(acl, none + WIDER)
    process.kill(daemon.pid, 'SIGHUP')
    assert.match(await daemon.says(/^RELOADING=1/), /^RELOADING=1\|MONOTONIC_USEC=\d+$/)
    assert.match(
      await daemon.says(/^READY=1/),
      /network process up; the ACL file allows more than the loaded one and was not loaded: restart x0xd$/,
    )
    const networkPid = async (): Promise<string> => (await readFile(join(dir, 'network.pid'), 'utf8')).split(' ')[0]!
    let now = await networkPid()
    // The second process hangs before it listens.
    for (const which of ['second', 'third']) {
      const before = now
      process.kill(Number(before), 'SIGSTOP')
      await until(`a ${which} network half`, async () => (now = await networkPid().catch(() => before)) !== before)
    }
    await daemon.says(/network process up/)
    await daemon.says(/^WATCHDOG=1$/)
    assert.ok(!daemon.messages.some((message) => message.startsWith('STOPPING')), 'the executor has gone on')
    process.kill(daemon.pid, 'SIGTERM')
    await daemon.says(/^STOPPING=1/)
    await daemon.ended
  },
)

test(
  `rexd reloads its certificates, and keeps the old ones if the new ones cannot be used${withoutOpenssl}`,
  { skip: withoutOpenssl !== '' || needsPerl.skip || false, ...TIMEOUT },
  async (t) => {
    const dir = await tempDir(t)
    const [first, second] = [await certificate(dir, 'first'), await certificate(dir, 'second')]
    const place = await rexdPlace(t, { server: `tls_cert = "${join(dir, 'now.crt')}"\ntls_key = "${join(dir, 'now.key')}"` })
    const use = async ({ cert, key }: { cert: string; key: string }): Promise<void> => {
      await writeFile(join(dir, 'now.crt'), cert)
      await writeFile(join(dir, 'now.key'), key, { mode: 0o600 })
    }
    await use(first)
    const rexd = await startNotified(t, [process.execPath, dist('rexd.mjs'), '--http', '--config', place.config], process.env)
    const port = Number(/^READY=1\|STATUS=https:\/\/127\.0\.0\.1:(\d+)\|WATCHDOG_USEC=30000000$/.exec(await rexd.says(/READY/))?.[1])
    const shown = async (): Promise<string> =>
      new Promise((resolve, reject) => {
        const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => {
          resolve(String(socket.getPeerCertificate().subject.CN))
          socket.destroy()
        })
        socket.on('error', reject)
      })
    assert.equal(await shown(), 'first')
    const reload = async (): Promise<string> => {
      process.kill(rexd.pid, 'SIGHUP')
      await rexd.says(/^RELOADING=1/)
      return rexd.says(/^READY=1/)
    }
    await use({ cert: second.cert, key: first.key })
    assert.match(await reload(), /the certificates could not be used, and the old ones stay in use$/)
    assert.equal(await shown(), 'first')
    await use(second)
    assert.match(await reload(), /the certificates were reloaded$/)
    assert.equal(await shown(), 'second')
    process.kill(rexd.pid, 'SIGTERM')
    await rexd.says(/^STOPPING=1/)
    await rexd.ended
  },
)
