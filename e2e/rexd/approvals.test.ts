import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { connect } from '../../src/sdk/client.ts'
import { stdio } from '../../src/sdk/byte-transport.ts'
import { deskPlace, type DeskPlaceInit } from '../../test/support/desk-place.ts'
import { decide, watching } from '../../test/support/desk-watcher.ts'
import { soon } from '../../test/support/local-engine.ts'
import { rexdPlace, type RexdSettings } from '../../test/support/rexd-server.ts'

// A client of REXD whose commands need approval.

const PROGRAM = join(import.meta.dirname, '../../dist/rexd.mjs')
const ON_HOST = '\n[tools.exec]\nhost = "gateway"\nsecurity = "allowlist"\n'

interface Answer {
  readonly id?: number
  readonly method?: string
  readonly params?: Record<string, unknown>
  readonly result?: { readonly ran_on?: { readonly host: string }; readonly [field: string]: unknown }
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> }
}

const callerOf = async (t: TestContext, init: DeskPlaceInit = {}, tools = ON_HOST, settings: RexdSettings = {}) => {
  const desk = await deskPlace(t, init)
  const place = await rexdPlace(t, settings)
  await writeFile(place.config, `${await readFile(place.config, 'utf8')}${tools}`)
  const env = { ...process.env, X0X_DATA_DIR: desk.paths.dir }
  const child = spawn(process.execPath, [PROGRAM, '--stdio', '--config', place.config], { env, stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(child, 'close')
  place.ending.push(async () => {
    child.stdin.end()
    await ended
  })
  const answers = new Map<number, (answer: Answer) => void>()
  const told: Record<string, unknown>[] = []
  createInterface({ input: child.stdout }).on('line', (line) => {
    const answer = JSON.parse(line) as Answer
    if (answer.method === 'exec.waiting') told.push(answer.params ?? {})
    answers.get(answer.id ?? 0)?.(answer)
  })
  let count = 0
  const call = async (method: string, params: object): Promise<Answer> => {
    const id = ++count
    const { promise, resolve } = Promise.withResolvers<Answer>()
    answers.set(id, resolve)
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`)
    return promise
  }
  const { result } = await call('session.open', { client_name: 'a caller' })
  const session = { session_id: String(result?.['session_id']) }
  return { desk, call, session, child, told, root: place.root }
}

/** Earlier releases listed a program with all its arguments. That would include everything that is typed into its pager. */
const PAGERS: readonly (readonly [what: string, modes: object, tools: string])[] = [
  ['a list', { security: 'allowlist', ask: 'off', allowlist: [{ pattern: '/usr/bin/git' }] }, 'security = "allowlist"\nask = "off"\n'],
  [
    'an always-ask list',
    { security: 'full', ask: 'off' },
    'security = "full"\nask = "off"\n[[tools.exec.always_ask]]\nargv = ["touch", "<ANY...>"]\nreason = "it makes files"\n',
  ],
]

for (const [what, modes, tools] of PAGERS)
  test(`a program on a terminal that opens a pager does not pass ${what} without approval`, async (t) => {
    const { desk, call, session, root } = await callerOf(t, {}, `\n[tools.exec]\nhost = "gateway"\n${tools}`, {
      security: 'allow_pty = true',
    })
    await desk.writeStore((store) => (store['agents'].main = modes))
    execFileSync('git', ['init', '-q'], { cwd: root })
    for (let at = 0; at < 30; at++)
      execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-q', '--allow-empty', '-m', `c${at}`], { cwd: root })
    const opened = await call('pty.open', { ...session, argv: ['git', 'log'], cwd: root, timeout_ms: 8_000 })
    assert.equal(opened.result, undefined)
    assert.match(String(opened.error?.data?.['code']), /^approval_(denied|unavailable)$/)
    // A transparent program still runs on a terminal.
    const shown = await call('pty.open', { ...session, argv: ['ls'], cwd: root, timeout_ms: 8_000 })
    assert.equal(shown.error === undefined, what !== 'a list', JSON.stringify(shown.error))
  })

test('a script that a client replaces during its approval does not run in REXD', async (t) => {
  const desk = await deskPlace(t)
  const place = await rexdPlace(t)
  await writeFile(place.config, `${await readFile(place.config, 'utf8')}${ON_HOST}`)
  const command = [process.execPath, PROGRAM, '--stdio', '--config', place.config]
  const client = await connect({ transport: stdio({ command, env: { ...process.env, X0X_DATA_DIR: desk.paths.dir } }) })
  place.ending.push(async () => client.close())
  const session = await client.open({ clientName: 'a caller' })
  const { human, next } = await watching(desk)
  const ran: string[] = []
  // In the last round the script is replaced after its run.
  for (const [round, delay] of [0, 1, 2, 3, 4, 5, 8, 12, 20, 30, null].entries()) {
    const script = join(place.root, `deploy${round}.sh`)
    await writeFile(script, 'echo GOOD\n')
    const asked = session.run(['sh', script]).then(
      ({ stdout }) => String(stdout).trim(),
      (error: unknown) => String((error as { readonly code?: string }).code),
    )
    const question = await next(round + 1)
    assert.deepEqual(question.question.writable, [question.question.script])
    assert.equal(question.question.grant_sha256, null)
    await decide(human, question, 'allow_once')
    await (delay === null ? asked : sleep(delay))
    await writeFile(script, 'echo EVIL\n')
    ran.push(await asked)
  }
  assert.ok(!ran.includes('EVIL') && ran.includes('GOOD'), ran.join(' '))
})

test('rexd exec reports that its command waits and which preferences were cut, and Ctrl-C withdraws the request', async (t) => {
  const desk = await deskPlace(t)
  const { config } = await rexdPlace(t)
  await writeFile(config, `${await readFile(config, 'utf8')}${ON_HOST}`)
  const { human, next, settled } = await watching(desk)
  const env = { ...process.env, X0X_DATA_DIR: desk.paths.dir }
  const begin = (...flags: string[]) => {
    const child = spawn(process.execPath, [PROGRAM, 'exec', '--config', config, ...flags, '--', 'echo', 'hello'], { env })
    let said = ''
    const told = new Promise<void>((resolve) => {
      child.stderr.setEncoding('utf8').on('data', (part: string) => {
        said += part
        if (said.includes('Ctrl-C withdraws it')) resolve()
      })
    })
    return { child, told, said: () => said, ended: once(child, 'close') }
  }
  const allowed = begin('--host', 'gateway', '--security', 'full')
  await decide(human, await next(), 'allow_once')
  assert.deepEqual(await allowed.ended, [0, null])
  assert.match(allowed.said(), /rexd: --security full is more than the server allows; it runs with allowlist\n$/)
  const waiting = begin()
  const { question_id: id } = await next(2)
  await waiting.told
  waiting.child.kill('SIGINT')
  assert.deepEqual(await waiting.ended, [130, null])
  assert.match(
    waiting.said(),
    new RegExp(`^rexd: waiting for approval: an approver on its machine \\(${id}\\); [12]:\\d\\d left, Ctrl-C withdraws it\n`),
  )
  assert.match(waiting.said(), /rexd: withdrawn before it began\n$/)
  assert.ok(await soon(() => settled.includes(id)), 'the question still waits')
})

test('a client that may set LANGUAGE cannot give a listed program its own message catalogue', async (t) => {
  const settings = { security: 'allow_env = ["LANGUAGE", "TZ"]\n' }
  const { desk, call, session, root } = await callerOf(t, {}, `${ON_HOST}ask = "off"\n`, settings)
  await desk.writeStore((store) => {
    store['agents'] = { main: { allowlist: [{ pattern: '/usr/bin/ls' }] } }
  })
  // A message catalogue that the requester can write. It contains the message of ls for a missing file.
  await mkdir(join(root, 'LC_MESSAGES'))
  await writeFile(join(root, 'LC_MESSAGES', 'coreutils.mo'), catalogue('cannot access %s', 'STOLEN %s %p'))
  const run = async (env: object): Promise<Answer> => call('exec.start', { ...session, argv: ['ls', '/no-such-file'], env })
  assert.equal((await run({ TZ: 'UTC' })).error, undefined)
  const { error } = await run({ LANGUAGE: `../../..${root}` })
  assert.match(error?.message ?? '', /no approver is connected/)
})

/** A gettext catalogue with one message besides its header (gettext(1), "The Format of GNU MO Files"). */
const catalogue = (id: string, text: string): Buffer => {
  const head = Buffer.alloc(28)
  for (const [at, value] of [0x950412de, 0, 2, 28, 44, 0, 60].entries()) head.writeUInt32LE(value, 4 * at)
  const tables = Buffer.alloc(32)
  let [at, body] = [0, '']
  for (const one of ['', id, 'Content-Type: text/plain; charset=UTF-8\n', text]) {
    tables.writeUInt32LE(one.length, at)
    tables.writeUInt32LE(60 + body.length, at + 4)
    at += 8
    body += `${one}\0`
  }
  return Buffer.concat([head, tables, Buffer.from(body)])
}
