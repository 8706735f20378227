import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'

import { commandInPath } from '../test/support/command-in-path.ts'
import { pageText } from '../test/support/documented.ts'
import { MeshOfDaemons } from '../test/support/mesh-of-daemons.ts'

test('the loop of docs/fleets.md makes a fleet of hosts that know nobody, and one ACL does for all of them', async (t) => {
  const [, loop = ''] = /^```text\n(card=.*?)^```$/ms.exec(pageText('docs/fleets.md')) ?? []
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const ops = mesh.add('ops')
  const hosts = ['web1', 'web2', 'web3'].map((name) => mesh.add(name))
  await ops.start()
  for (const host of hosts) {
    await host.writeAcl([{ agent: ops, commands: [['uname', '-r']] }])
    await host.start()
  }
  // Another machine is the daemon of that name.
  const dirs = hosts.map(({ dir }, at) => `web${at + 1}) X0X_DATA_DIR='${dir}' "$@";;`).join(' ')
  const ssh = `ssh() { local host=$1; shift; case $host in ${dirs} esac; }`
  const env = { ...(await commandInPath(t)), X0X_DATA_DIR: ops.dir }
  await promisify(execFile)('bash', ['-e', '-c', `${ssh}\n${loop}`], { env })
  const { status, stdout, stderr } = await ops.cli(['exec', 'role=web', '--group', '--', 'uname', '-r'])
  assert.equal(status, 0, stderr)
  assert.match(stdout.toString(), /^web\[1-3\] \(3\): /)
})
