import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { ReadStream } from 'node:tty'

import { loadPty } from '../../../src/process/native-pty.ts'
import { MeshOfDaemons } from '../../support/mesh-of-daemons.ts'
import { tempDir } from '../../support/temp-dir.ts'

const DAEMON = join(import.meta.dirname, '../../../dist/x0xd.mjs')

test('a daemon that is ready says what it allows, and what to do where that is nothing', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const bob = mesh.add('bob')
  await bob.start()
  assert.match(bob.ready, /^x0xd \S+ ready: agent \w{64}, .*\nNothing is allowed yet\. Next: x0x invite NAME\n$/)
  await bob.stop()
  await bob.writeAcl([{ agent: bob, commands: [['true'], ['df', '-h']] }])
  await bob.start()
  assert.match(bob.ready, /\nThe ACL allows 2 commands\n$/)
})

test('at a terminal a daemon that is ready says so in one short line', async (t) => {
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
  assert.match(text, /^x0xd ready\. Nothing is allowed yet\. Next: x0x invite NAME\r?$/m)
})
