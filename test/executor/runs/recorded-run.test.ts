import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdir, readFile, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { JournalRecording } from '../../../src/journal/events.ts'
import { readRecording } from '../../../src/transcripts/read-recording.ts'
import { execExit, type ExecExit } from '../../../src/protocol/wire/exec.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import { until } from '../../support/mesh-of-daemons.ts'
import { ProbeTerminal } from '../../support/probe-terminal.ts'

// Commands that must be recorded, in the executor process of the target.

const SCRIPTS = {
  echoes: 'stty -echo; echo ready; read secret; stty size; echo over; exit 3',
  idle: "trap 'exit 5' HUP; echo ready; while :; do echo more; sleep 0.05; done",
}

const hostOf = async (t: TestContext, commandKeys = 'record = true\nwatch = true\n') =>
  ExecutorHost.linked(t, { scripts: SCRIPTS, terminals: true, commandKeys })

const linesOf = async (host: ExecutorHost): Promise<Readonly<Record<string, unknown>>[]> =>
  (await host.lines()) as unknown as Readonly<Record<string, unknown>>[]

/** The recording of the ended run. */
const recordingOf = async (host: ExecutorHost): Promise<JournalRecording> => {
  const exit = (await linesOf(host)).find(({ event }) => event === 'exit')
  assert.ok(exit)
  return exit['recording'] as JournalRecording
}

const exitOf = async ({ run }: ProbeTerminal): Promise<ExecExit> => execExit.decode((await run.frame('exit')).body)

const shownIn = async (directory: string, name: string): Promise<string> => {
  let text = ''
  for await (const event of readRecording(directory, name)) text += event.kind === 'o' ? event.text : `<${event.text}>`
  return text
}

test('the requester learns of the recording before the start, and the audit log has its hash', async (t) => {
  const { host, link } = await hostOf(t)
  const terminal = await ProbeTerminal.open(link, [host.program('echoes')])
  await terminal.shows('ready')
  await terminal.resize(100, 30)
  await terminal.type('hunter2\n')
  const { code } = await exitOf(terminal)
  assert.equal(code, 3)
  const kinds = terminal.run.frames.flatMap((frame) =>
    frame.type === 'warning' ? [frame.kind] : frame.type === 'started' ? ['started'] : [],
  )
  assert.deepEqual(kinds, ['session_recorded', 'session_watchable', 'started'])
  const lines = await linesOf(host)
  const request = lines.find(({ event }) => event === 'request')
  const { name, sha256, bytes, complete } = await recordingOf(host)
  assert.deepEqual([request?.['recording'], complete], [name, true])
  const directory = join(host.dir, 'recordings')
  const file = await readFile(join(directory, `${name}.cast`))
  assert.deepEqual([bytes, sha256], [file.length, createHash('sha256').update(file).digest('hex')])
  const shown = await shownIn(directory, name)
  assert.match(shown, /^ready\r\n<100x30>30 100\r\nover\r\n$/)
  // Input that the terminal does not echo is not recorded.
  assert.ok(!file.includes('hunter2'))
})

test('a run of the command without a terminal is also recorded', async (t) => {
  const { host, link } = await hostOf(t)
  const run = await link.ask([host.program('idle')])
  await run.frame('stdout')
  run.cancel()
  await run.frame('exit')
  const { name } = await recordingOf(host)
  assert.match(await shownIn(join(host.dir, 'recordings'), name), /^ready\n(more\n)*/)
})

test('a command that cannot be recorded does not run', async (t) => {
  const { host, link } = await hostOf(t)
  await mkdir(join(host.dir, 'recordings'), { mode: 0o777 })
  const terminal = await ProbeTerminal.open(link, [host.program('echoes')])
  assert.equal((await exitOf(terminal)).denial_reason, 'recording_unavailable')
  const lines = await linesOf(host)
  assert.deepEqual(
    lines.map(({ event }) => event),
    ['denial'],
  )
  assert.match(String(lines[0]?.['detail']), /^its recording cannot be kept: /)
})

test('a recording that fails during a run ends the program', async (t) => {
  const { host, link } = await hostOf(t)
  const terminal = await ProbeTerminal.open(link, [host.program('idle')])
  await terminal.shows('ready')
  const directory = join(host.dir, 'recordings')
  await until('it is there', async () => (await readdir(directory)).length === 1)
  await rm(directory, { recursive: true })
  const { code } = await exitOf(terminal)
  assert.equal(code, 5)
  const lines = await linesOf(host)
  assert.ok(lines.some(({ event, kind }) => event === 'warning' && kind === 'recording_failed'))
  assert.equal((await recordingOf(host)).complete, false)
})

test('a command without record = true creates no recording', async (t) => {
  const { host, link } = await hostOf(t, '')
  const terminal = await ProbeTerminal.open(link, [host.program('echoes')])
  await terminal.shows('ready')
  await terminal.type('x\n')
  await exitOf(terminal)
  assert.ok(!(await readdir(host.dir)).includes('recordings'))
  assert.ok(terminal.run.frames.every(({ type }) => type !== 'warning'))
})
