import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'

import { AppError, isAppError } from '../../src/base/errors.ts'
import { loadOrCreateAgentKey } from '../../src/identity/agent-key.ts'
import { loadOrCreateSeed } from '../../src/identity/key-file.ts'
import { loadOrCreateMachineKey, machineIdOfKeyFile } from '../../src/identity/machine-key.ts'
import { verifyAgent } from '../../src/identity/signing.ts'
import { tempDir } from '../support/temp-dir.ts'

const mode = async (path: string): Promise<number> => (await stat(path)).mode & 0o777

test('keys are created on first use, with private permissions, and stay the same', async (t) => {
  const directory = join(await tempDir(t), 'new', 'data')
  const agent = await loadOrCreateAgentKey(directory)
  const machine = await loadOrCreateMachineKey(directory)
  assert.equal(await mode(directory), 0o700)
  assert.equal(await mode(join(directory, 'agent.key')), 0o600)
  assert.equal(await mode(join(directory, 'machine.key')), 0o600)
  assert.deepEqual((await readdir(directory)).toSorted(), ['agent.key', 'machine.key'])
  assert.match(await readFile(join(directory, 'agent.key'), 'latin1'), /^x0x-agent-key-v1\n[0-9a-f]{64}\n$/)
  assert.match(await readFile(join(directory, 'machine.key'), 'latin1'), /^x0x-machine-key-v1\n[0-9a-f]{64}\n$/)
  const again = await loadOrCreateAgentKey(directory)
  assert.equal(again.agentId, agent.agentId)
  const body = Buffer.from('x')
  assert.equal(verifyAgent(agent.publicKey, 'test', body, await again.sign('test', body)), true)
  assert.equal((await loadOrCreateMachineKey(directory)).machineId, machine.machineId)
  assert.equal(await machineIdOfKeyFile(directory), machine.machineId)
})

test('reading a missing machine ID fails with not_found and creates no key', async (t) => {
  const directory = await tempDir(t)
  await assert.rejects(machineIdOfKeyFile(directory), (error) => isAppError(error, 'not_found'))
  assert.deepEqual(await readdir(directory), [])
})

test('a key that others can read is refused, with the command that fixes it', async (t) => {
  const directory = await tempDir(t)
  await loadOrCreateAgentKey(directory)
  const path = join(directory, 'agent.key')
  for (const loose of [0o640, 0o604, 0o660, 0o666]) {
    await chmod(path, loose)
    await assert.rejects(loadOrCreateAgentKey(directory), (error) => {
      assert.ok(error instanceof AppError)
      assert.equal(error.code, 'loose_permissions')
      assert.match(error.message, /chmod 0600 /)
      return true
    })
  }
})

test('a directory that others can enter is refused, unless the caller allows a group', async (t) => {
  const directory = join(await tempDir(t), 'data')
  await mkdir(directory)
  await chmod(directory, 0o750)
  await assert.rejects(loadOrCreateAgentKey(directory), (error) => isAppError(error, 'loose_permissions'))
  assert.deepEqual(await readdir(directory), [])
  await loadOrCreateAgentKey(directory, 0o750)
  await chmod(directory, 0o770)
  await assert.rejects(loadOrCreateAgentKey(directory, 0o750), (error) => isAppError(error, 'loose_permissions'))
})

test('a damaged key file is refused and left unchanged', async (t) => {
  const directory = await tempDir(t)
  const path = join(directory, 'agent.key')
  const seed = 'ab'.repeat(32)
  const broken = [
    '',
    '\n',
    seed,
    `${seed}\n`,
    `x0x-agent-key-v1\n${seed}`,
    `x0x-agent-key-v1\n${seed}\n\n`,
    `x0x-agent-key-v1\n${seed.slice(1)}\n`,
    `x0x-agent-key-v1\n${seed}a\n`,
    `x0x-agent-key-v1\n${seed.toUpperCase()}\n`,
    `x0x-agent-key-v1\r\n${seed}\r\n`,
    `x0x-agent-key-v2\n${seed}\n`,
    `x0x-machine-key-v1\n${seed}\n`,
  ]
  for (const text of broken) {
    await writeFile(path, text, { mode: 0o600 })
    await assert.rejects(loadOrCreateAgentKey(directory), (error) => isAppError(error, 'bad_key_file') && error.message.includes(path))
    await assert.rejects(loadOrCreateAgentKey(directory), /restore it from a backup|from a later x0x/)
    assert.equal(await readFile(path, 'latin1'), text)
    assert.deepEqual(await readdir(directory), ['agent.key'])
  }
})

test('a damaged API token may be deleted, and the error suggests no backup', async (t) => {
  const path = join(await tempDir(t), 'api-token')
  await writeFile(path, 'nonsense', { mode: 0o600 })
  await assert.rejects(loadOrCreateSeed({ path, header: null }), (error) => {
    assert.ok(isAppError(error, 'bad_key_file'))
    assert.equal(error.message, `${path} is not a secret of x0x (64 hex digits); delete it, and the next start makes a new one`)
    return true
  })
  await rm(path)
  assert.equal((await loadOrCreateSeed({ path, header: null })).length, 32)
})

test('a secret without a header that a group may read contains only digits and has mode 0640', async (t) => {
  const path = join(await tempDir(t), 'operator.key')
  const seed = await loadOrCreateSeed({ path, header: null, groupMayRead: true })
  assert.equal(await mode(path), 0o640)
  assert.equal(await readFile(path, 'latin1'), `${Buffer.from(seed).toString('hex')}\n`)
  assert.deepEqual(await loadOrCreateSeed({ path, header: null, groupMayRead: true }), seed)
  await assert.rejects(loadOrCreateSeed({ path, header: null }), (error) => isAppError(error, 'loose_permissions'))
})

test('simultaneous first starts in one process agree on one key', async (t) => {
  const directory = await tempDir(t)
  const agents = await Promise.all(Array.from({ length: 8 }, () => loadOrCreateAgentKey(directory)))
  assert.equal(new Set(agents.map(({ agentId }) => agentId)).size, 1)
  assert.deepEqual(await readdir(directory), ['agent.key'])
})

test('simultaneous first starts in several processes agree on one key', async (t) => {
  const directory = await tempDir(t)
  const source = pathToFileURL(join(import.meta.dirname, '../../src/identity/machine-key.ts')).href
  const script = `
    import { loadOrCreateMachineKey } from ${JSON.stringify(source)}
    process.stdin.once('data', async () => {
      console.log((await loadOrCreateMachineKey(${JSON.stringify(directory)})).machineId)
      process.exit()
    })
    console.log('ready')`
  const children = Array.from({ length: 4 }, () =>
    spawn(process.execPath, ['--input-type=module', '--eval', script], { stdio: ['pipe', 'pipe', 'inherit'] }),
  )
  const outputs = children.map((child) => {
    let text = ''
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
    return () => text
  })
  const ends = children.map((child) => once(child, 'close'))
  await Promise.all(children.map((child) => once(child.stdout, 'data')))
  for (const child of children) child.stdin.end('go\n')
  await Promise.all(ends)
  const ids = new Set(outputs.map((output) => output().split('\n')[1]))
  assert.equal(ids.size, 1)
  assert.ok(ids.has(await machineIdOfKeyFile(directory)))
  assert.deepEqual(await readdir(directory), ['machine.key'])
})
