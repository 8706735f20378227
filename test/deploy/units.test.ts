import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy')
const security = (unit: string) =>
  spawnSync('systemd-analyze', ['security', '--offline=yes', '--no-pager', join(DEPLOY, unit)], { encoding: 'utf8' })
const needsSystemd = { skip: security('x0xd.service').status === 0 ? false : 'needs systemd-analyze' }

/** Of 10: `systemd-analyze security`. What is left is the network itself, a runtime that compiles as it runs, and the control groups that hold runs. */
const MOST = { 'x0xd-network.service': 1.5, 'x0xd-executor.service': 2, 'x0xd.service': 2.1 }

for (const [unit, most] of Object.entries(MOST)) {
  test(`the exposure of ${unit} is at most ${most} of 10`, needsSystemd, () => {
    const { stdout } = security(unit)
    const exposure = Number(/Overall exposure level for \S+: ([0-9.]+)/.exec(stdout)?.[1])
    assert.ok(exposure <= most, stdout)
  })
}

const settings = (unit: string): Map<string, string> =>
  new Map(
    readFileSync(join(DEPLOY, unit), 'utf8')
      .split('\n')
      .filter((line) => /^[A-Z]\w+=/.test(line))
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const),
  )

test('the unit of the network half can execute nothing but the runtime, write nothing, and is another user than the executor', () => {
  const [network, executor, socket] = ['x0xd-network.service', 'x0xd-executor.service', 'x0xd-executor.socket'].map(settings)
  assert.equal(network?.get('NoExecPaths'), '/')
  assert.equal(network?.get('ProtectSystem'), 'strict')
  assert.equal(network?.get('ReadWritePaths') ?? network?.get('StateDirectory'), undefined)
  assert.match(
    network?.get('ExecStart') ?? '',
    /^\/usr\/bin\/node --permission --allow-fs-read=\S+\/x0xd-network\.mjs \S+\/x0xd-network\.mjs --executor \S+$/,
  )
  assert.ok(network?.get('ExecPaths')?.startsWith('/usr/bin/node '))
  assert.equal(executor?.get('RestrictAddressFamilies'), 'AF_UNIX')
  assert.equal(executor?.get('Delegate'), 'memory pids')
  assert.notEqual(network?.get('User'), executor?.get('User'))
  assert.equal(socket?.get('SocketUser'), network?.get('User'))
  assert.equal(socket?.get('SocketMode'), '0600')
  const path = socket?.get('ListenStream') ?? ''
  for (const unit of [network, executor]) assert.ok(unit?.get('ExecStart')?.includes(` ${path}`))
})
