import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'

import { commandInPath } from '../test/support/command-in-path.ts'
import { pageText } from '../test/support/documented.ts'
import { MeshOfDaemons, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

const [, LOOP = ''] = /^```text\n(card=.*?)^```$/ms.exec(pageText('docs/fleets.md')) ?? []

/** A shell function `ssh` for which a daemon with this name is the remote machine. */
const sshTo = (hosts: Readonly<Record<string, TestDaemon>>): string => {
  const dirs = Object.entries(hosts).map(([name, { dir }]) => `${name}) X0X_DATA_DIR='${dir}' "$@";;`)
  return `ssh() { local host=$1; shift; case $host in ${dirs.join(' ')} esac; }`
}

test('the loop of docs/fleets.md makes a fleet of hosts without contacts, and all of them use one ACL', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const ops = mesh.add('ops')
  const hosts = ['web1', 'web2', 'web3'].map((name) => mesh.add(name))
  await ops.start()
  for (const host of hosts) {
    await host.writeAcl([{ agent: ops, commands: [['uname', '-r']] }])
    await host.start()
  }
  const env = { ...(await commandInPath(t)), X0X_DATA_DIR: ops.dir }
  await promisify(execFile)('bash', ['-e', '-c', `${sshTo({ web1: hosts[0]!, web2: hosts[1]!, web3: hosts[2]! })}\n${LOOP}`], { env })
  const { status, stdout, stderr } = await ops.cli(['exec', 'role=web', '--group', '--', 'uname', '-r'])
  assert.equal(status, 0, stderr)
  assert.match(stdout.toString(), /^web\[1-3\] \(3\): /)
})

test('a host with the keys of another does not take its name, and the loop of docs/fleets.md skips it', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const [ops, web1, web3] = [mesh.add('ops'), mesh.add('web1'), mesh.add('web3')]
  await Promise.all([ops.start(), web1.start(), web3.start()])
  const env = { ...(await commandInPath(t)), X0X_DATA_DIR: ops.dir }
  // Two hosts from one image have the same keys.
  const { stdout, stderr } = await promisify(execFile)('bash', ['-c', `${sshTo({ web1, web2: web1, web3 })}\n${LOOP}`], { env })
  assert.match(stderr, /^x0x: this agent is the contact web1 \(conflict\): it cannot be web2 too, and nothing was changed$/m)
  assert.match(stderr, /^ {5}Try: x0x contacts import LINK --as web1, or, to rename it: x0x contacts import LINK --as web2 --rename$/m)
  assert.match(stderr, /^x0x: 2 hosts: web\[1,3\]$/m)
  assert.match(stdout, /^web1 .*\nweb3 .*$/m)
  const renamed = await ops.cli(['contacts', 'import', (await web1.ok('card')).trim(), '--as', 'db1', '--rename'])
  assert.equal(renamed.status, 0, renamed.stderr)
  assert.match(renamed.stdout.toString(), /^db1: known, pinned to .*, role=web\n$/)
  assert.equal(renamed.stderr, 'x0x: web1 is now db1: change groups.toml and scripts that use web1\n')
  assert.equal((await ops.cli(['contacts', 'import', 'x0x://agent/AA', '--rename'])).status, 2)
})
