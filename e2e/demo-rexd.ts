import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'

import { shellWords } from '../src/base/format.ts'
import { connect } from '../src/sdk/client.ts'
import { RexdError } from '../src/sdk/errors.ts'
import { stdio } from '../src/sdk/byte-transport.ts'
import { cleanEnvironment, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { Stage } from './stage.ts'

const REXD = fileURLToPath(new URL('../dist/rexd.mjs', import.meta.url))

interface Shown {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
  readonly ms: number
}

const configure = async (directory: string, work: string): Promise<string> => {
  await mkdir(work, { recursive: true })
  const file = join(directory, 'rexd.toml')
  const lines = [
    `audit = { path = ${JSON.stringify(join(directory, 'rexd.jsonl'))} }`,
    '[security]',
    'allow_targets = ["bob"]',
    'allow_commands = [{ argv = ["wc", "-c"], args = "any" }]',
    '[[security.allowed_roots]]',
    `path = ${JSON.stringify(work)}`,
  ]
  await writeFile(file, lines.join('\n'), { mode: 0o600 })
  return file
}

/** Shows a client program of alice: files and commands within one directory, and commands on bob that his ACL allows. */
export const showRexd = async (stage: Stage, alice: TestDaemon, directory: string): Promise<void> => {
  stage.section('For programs: files and commands of one directory over JSON-RPC (REXD)')
  const work = join(directory, 'work')
  const config = await configure(directory, work)
  const client = await connect({ transport: stdio({ command: [process.execPath, REXD, '--stdio', '--config', config] }) })
  try {
    const session = await client.open({ clientName: 'demo' })
    await session.files.write('notes.txt', 'feed the cat\n')
    stage.expect('a program writes and reads notes.txt', (await session.files.readText('notes.txt')) === 'feed the cat\n')
    const outside = await session.files.readText('../rexd.toml').catch((error: unknown) => error)
    stage.expect(
      'a file outside the directory is refused: forbidden_path',
      outside instanceof RexdError && outside.name === 'forbidden_path',
    )
  } finally {
    await client.close()
  }
  const show = async (...argv: readonly string[]): Promise<Shown> => {
    const began = performance.now()
    const child = spawn(process.execPath, [REXD, 'exec', '--config', config, ...argv], {
      env: { ...cleanEnvironment(), X0X_DATA_DIR: alice.dir },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const [stdout, stderr, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
    stage.command('alice', `rexd exec --config rexd.toml ${shellWords(argv)}`, stdout + stderr)
    return { status: status as number | null, stdout, stderr, ms: performance.now() - began }
  }
  const counted = await show('--', 'wc', '-c', 'notes.txt')
  stage.expect('a command that rexd.toml lists', counted.stdout === '13 notes.txt\n', counted.ms)
  const refused = await show('--', 'cat', 'notes.txt')
  stage.expect('a command that it does not list: command_denied', refused.status === 255 && refused.stdout === '', refused.ms)
  const remote = await show('--target', 'bob', '--', 'echo', '42')
  stage.expect('a command on bob that his ACL allows', remote.stdout === '42\n', remote.ms)
  const denied = await show('--target', 'bob', '--', 'echo', 'hello')
  stage.expect(
    'a command on bob that his ACL does not allow: argv_not_allowed',
    denied.status === 255 && denied.stderr.includes('argv_not_allowed'),
    denied.ms,
  )
}
