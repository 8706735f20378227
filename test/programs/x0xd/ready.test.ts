import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { ReadStream } from 'node:tty'

import { LocalApi } from '../../../src/clients/daemon.ts'
import { loadPty } from '../../../src/process/terminal.ts'
import { MeshOfDaemons, until } from '../../support/mesh-of-daemons.ts'
import { tempDir } from '../../support/temp-dir.ts'

const DAEMON = join(import.meta.dirname, '../../../dist/x0xd.mjs')

test('the ready line says how many commands the ACL allows, or what to do if it allows none', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const bob = mesh.add('bob')
  await bob.start()
  assert.match(bob.ready, /^x0xd \S+ ready: agent \w{64}, .*\nNothing is allowed yet\. Next: x0x invite NAME --data-dir \S+\n$/)
  await bob.stop()
  await bob.writeAcl([{ agent: bob, commands: [['true'], ['df', '-h']] }])
  await bob.start()
  assert.match(bob.ready, /\nThe ACL allows 2 commands\n$/)
})

test('at a terminal, the ready message is one short line', async (t) => {
  const loaded = loadPty()
  assert.ok('native' in loaded)
  const { master, slave } = loaded.native.open(80, 24)
  const dir = await tempDir(t)
  const flags = ['--data-dir', dir, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  const daemon = spawn(process.execPath, [DAEMON, '--init', ...flags], { stdio: ['ignore', slave, 'ignore'] })
  closeSync(slave)
  t.after(async () => {
    daemon.kill('SIGKILL')
  })
  let text = ''
  for await (const part of new ReadStream(master)) {
    text += String(part)
    if (text.includes('x0xd ready')) break
  }
  assert.match(text, /^x0xd ready\. Nothing is allowed yet\. Next: x0x invite NAME --data-dir \S+\r?$/m)
})

const [STOP, GO_ON] = ['\u0013', '\u0011']

test('a terminal stopped with Ctrl-S delays neither the daemon nor its end, and shows the line later', { timeout: 60_000 }, async (t) => {
  const dir = await tempDir(t)
  const startStopped = async () => {
    const loaded = loadPty()
    assert.ok('native' in loaded)
    const { master, slave } = loaded.native.open(80, 24)
    writeSync(master, STOP)
    const flags = ['--data-dir', dir, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
    const daemon = spawn(process.execPath, [DAEMON, '--init', ...flags], { stdio: ['ignore', slave, 'ignore'] })
    closeSync(slave)
    const exited = once(daemon, 'exit')
    t.after(() => daemon.kill('SIGKILL'))
    const terminal = new ReadStream(master)
    // The end of the daemon closes the slave side of the pty.
    terminal.on('error', () => undefined)
    t.after(() => terminal.destroy())
    const api = new LocalApi({ instance: { name: null, dataDir: dir }, url: null, env: {} })
    await until('the daemon answers', async () => api.json({ method: 'GET', path: '/health' }).catch(() => null))
    return { daemon, exited, terminal }
  }

  const first = await startStopped()
  first.daemon.kill('SIGTERM')
  assert.deepEqual(await first.exited, [0, null])

  const { daemon, exited, terminal } = await startStopped()
  let text = ''
  const shown = new Promise<void>((resolve) =>
    terminal.on('data', (part) => {
      text += String(part)
      if (text.includes('x0xd ready')) resolve()
    }),
  )
  terminal.write(GO_ON)
  await shown
  daemon.kill('SIGTERM')
  assert.deepEqual(await exited, [0, null])
})
