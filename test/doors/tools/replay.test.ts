import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import * as fc from 'fast-check'

import { AppError, isAppError } from '../../../src/base/errors.ts'
import { RecordDigest } from '../../../src/doors/tools/tool-run-recorder.ts'
import { Replay, type Difference } from '../../../src/doors/tools/replay.ts'
import { LineRecorder } from '../../../src/doors/tools/tool-run-recorder.ts'
import type { ToolRequest } from '../../../src/doors/tools/tool-request.ts'
import { MAX_ENDED, MAX_UNDER_WAY } from '../../../src/doors/tools/tool-runs.ts'
import { ToolRun } from '../../../src/doors/tools/tool-run.ts'
import type { LocalOutcome, LocalRunHandle } from '../../../src/executor-api/local.ts'
import { MAX_RECORD_LINE, parseRecordLine, type RecordLine } from '../../../src/protocol/tool-record.ts'
import { MAX_KEYS } from '../../../src/protocol/limits/tools.ts'
import { runCli } from '../../support/fake-daemon.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { tempDir } from '../../support/temp-dir.ts'

const VIEW = { stdout: 64, stderr: 1_024 }

const REQUEST: ToolRequest = {
  operation: 'exec_capture',
  command: 'make',
  args: ['-k', 'all'],
  cwd: null,
  target: null,
  env: { TOKEN: 's3cret-value' },
  stdin: Buffer.from('s3cret input'),
  timeout_ms: 30_000,
}

const OUTCOME: LocalOutcome = {
  code: 2,
  signal: null,
  duration_ms: 12.5,
  stdout_bytes_total: 900,
  stderr_bytes_total: 12,
  truncated: false,
  denial_reason: null,
  detail: null,
  lost: null,
}

interface Script {
  readonly outcome?: LocalOutcome | null
  readonly refusal?: unknown
  readonly output?: readonly (readonly ['stdout' | 'stderr', string | Buffer])[]
  readonly timesOut?: boolean
  readonly clamped?: boolean
}

const OUTPUT: Script['output'] = [
  ['stdout', `\u001b[1mbuilding\u001b[0m é\r\n${'x'.repeat(400)}`],
  ['stderr', Buffer.from([0x77, 0xff, 0xe2, 0x82])],
  ['stdout', `${'y'.repeat(400)}\u001b]0;title`],
  ['stderr', Buffer.from([0xac, 0x0a])],
]

/** The record of one run that follows the script. Results are requested before, during and after the run. */
const recordOf = async ({
  outcome = OUTCOME,
  refusal,
  output = OUTPUT,
  timesOut = false,
  clamped = false,
}: Script = {}): Promise<string> => {
  const lines: Buffer[] = []
  const recorder = new LineRecorder({ clock: new ManualClock(), write: (line) => void lines.push(line) }, { whoami: 'a test' })
  const run = new ToolRun({ id: 'run_1', request: REQUEST, askedAt: 1, recorder })
  run.result(VIEW)
  if (refusal !== undefined) {
    if (isAppError(refusal)) run.refuse(refusal)
    else assert.throws(() => run.refuse(refusal))
  } else {
    let end = (_outcome: LocalOutcome | null): void => undefined
    const ended = new Promise<LocalOutcome | null>((resolve) => (end = resolve))
    const local = { startedAt: '2026-05-21T09:42:18.000Z', cwd: '/srv', caps: { timeout_ms: 1_000 }, ended } as LocalRunHandle
    const followed = run.follow(local)
    for (const [type, data] of output) run.event({ type, data: Buffer.from(data) })
    if (clamped) run.event({ type: 'warning', kind: 'timeout_clamped' })
    if (timesOut) run.event({ type: 'warning', kind: 'duration_cap_hit' })
    run.result(VIEW)
    end(outcome)
    await followed
  }
  run.result(VIEW)
  run.result({ stdout: 0, stderr: 0 })
  run.part('stdout', 100, 50)
  return lines.join('')
}

/** The record with its final line, as the server writes it. */
const finished = (record: string): string => {
  const digest = new RecordDigest()
  for (const line of record.trimEnd().split('\n')) digest.add(Buffer.from(line))
  return `${record}${JSON.stringify({ event: 'end', ...digest.value() })}\n`
}

const linesOf = (record: string): RecordLine[] =>
  record
    .trimEnd()
    .split('\n')
    .map((line) => {
      const parsed = parseRecordLine(Buffer.from(line))
      assert.ok(typeof parsed === 'object', String(parsed))
      return parsed
    })

const replayOf = async (lines: readonly RecordLine[]): Promise<{ readonly replay: Replay; readonly difference: Difference | null }> => {
  const replay = new Replay()
  for (const line of lines) {
    const difference = await replay.take(line)
    if (difference !== null) return { replay, difference }
  }
  return { replay, difference: null }
}

const SCRIPTS: Readonly<Record<string, Script>> = {
  'a command that failed': {},
  'a run that exceeded its timeout': { timesOut: true, outcome: { ...OUTCOME, code: null, signal: 15 } },
  'a timeout that the target clamped': { clamped: true },
  'output over the limit of the target': { outcome: { ...OUTCOME, stdout_bytes_total: 1_000_000, truncated: true } },
  'a run with an unknown result': { outcome: { ...OUTCOME, lost: 'the target is gone' } },
  'a failure of the executor': { outcome: null },
  'a failed start on a target': { outcome: { ...OUTCOME, code: null, denial_reason: 'spawn_failed', detail: 'no \u001b[2Jspace' } },
  'a denial': { refusal: new AppError('command_denied', 'it is not allowed', { data: { reason: 'argv_not_allowed' } }) },
  'a missing program': { refusal: new AppError('file_not_found', 'there is no make', { data: { argv0: 'make' } }) },
  'a forbidden directory': { refusal: new AppError('forbidden_path', 'it is outside', { data: { path: '/etc' } }) },
  'an internal error': { refusal: new TypeError('x is not a function') },
  'no output': { output: [] },
}

for (const [what, script] of Object.entries(SCRIPTS))
  test(`${what} is replayed to the same results`, async () => {
    const record = await recordOf(script)
    const { replay, difference } = await replayOf(linesOf(record))
    assert.equal(difference, null, JSON.stringify(difference))
    assert.deepEqual([replay.runs, replay.results, replay.interrupted, replay.complete], [1, script.refusal === undefined ? 5 : 4, 0, true])
    assert.ok(!record.includes('s3cret'))
  })

test('a change of any field of a result is found and named', async () => {
  const lines = linesOf(await recordOf())
  for (const [at, line] of lines.entries()) {
    if (line.event !== 'result') continue
    for (const field of Object.keys(line.result)) {
      const value = line.result[field]
      const other = typeof value === 'string' ? `${value}x` : typeof value === 'number' ? value + 1 : value === null ? 'x' : null
      for (const result of [
        { ...line.result, [field]: other },
        Object.fromEntries(Object.entries(line.result).filter(([name]) => name !== field)),
      ]) {
        const { difference } = await replayOf(lines.with(at, { ...line, result }))
        assert.equal(difference?.field, field, field)
        assert.equal(difference.run, 'run_1')
      }
    }
    const more = await replayOf(lines.with(at, { ...line, result: { ...line.result, more: 1 } }))
    assert.equal(more.difference?.field, 'more')
    const frame = await replayOf(lines.with(at, { ...line, text_sha256: '0' }))
    assert.equal(frame.difference?.field, 'text_sha256')
  }
})

test('dropped text is also dropped in the replay, and earlier results are compared with the text of their time', async () => {
  const lines: Buffer[] = []
  const recorder = new LineRecorder({ clock: new ManualClock(), write: (line) => void lines.push(line) }, { whoami: 'a test' })
  const run = new ToolRun({ id: 'run_1', request: REQUEST, askedAt: 1, recorder })
  run.event({ type: 'stdout', data: Buffer.from('kept') })
  await run.follow({
    startedAt: '2026-05-21T09:42:18.000Z',
    cwd: '/srv',
    caps: { timeout_ms: 1_000 },
    ended: Promise.resolve(OUTCOME),
    cancel: () => undefined,
    signal: () => false,
  })
  const text = { ...run.text }
  run.dropText()
  assert.match(run.result(VIEW, text).stdout, /^kept/)
  assert.doesNotMatch(run.result(VIEW).stdout, /^kept/)
  run.part('stdout', 0, 100)
  const record = linesOf(lines.join(''))
  const { replay, difference } = await replayOf(record)
  assert.deepEqual([difference, replay.results, replay.unchecked], [null, 3, 0])
  const at = record.findIndex((line) => line.event === 'result')
  assert.equal((await replayOf(record.with(at, { ...record[at]!, of_dropped: false } as RecordLine))).difference?.field, 'stdout')
})

test('a record with more simultaneous runs than a server allows is refused', async () => {
  const [record, request] = linesOf(await recordOf())
  const of = (count: number): RecordLine[] => [
    record!,
    ...Array.from({ length: count }, (_item, n) => ({ ...request!, run: `run_${n}` }) as RecordLine),
  ]
  const most = MAX_UNDER_WAY + MAX_ENDED
  assert.equal((await replayOf(of(most))).replay.runs, most)
  await assert.rejects(replayOf(of(most + 1)), { code: 'bad_request', message: /more runs are active/ })
})

const END: RecordLine = { event: 'end', lines: 1, sha256: '0' }

test('an event in an impossible position is refused', async () => {
  const lines = linesOf(await recordOf())
  const at = (event: RecordLine['event']): number => lines.findIndex((line) => line.event === event)
  const bad: readonly RecordLine[][] = [
    lines.slice(1),
    [lines[0]!, lines[0]!],
    [{ ...lines[0]!, version: 99 } as RecordLine],
    lines.toSpliced(at('request'), 1),
    lines.toSpliced(at('request'), 0, lines[at('request')]!),
    lines.toSpliced(at('started'), 0, lines[at('started')]!),
    [...lines, lines[at('ended')]!],
    [...lines, lines[at('stdout')]!],
    [...lines, { ...lines[at('result')]!, run: 'run_2' } as RecordLine],
    [...lines, END, END],
    [...lines, END, lines[at('result')]!],
    [...lines, { event: 'incomplete', reason: 'x' }, lines[at('result')]!],
  ]
  for (const [number, one] of bad.entries()) await assert.rejects(replayOf(one), { code: 'bad_request' }, `${number}`)
})

test('property: a record that is changed or cut anywhere parses, differs or is refused with bad_request', async () => {
  const record = Buffer.from(await recordOf())
  await fc.assert(
    fc.asyncProperty(fc.nat(record.length - 1), fc.nat(255), fc.boolean(), async (at, byte, cuts) => {
      const changed = cuts ? record.subarray(0, at) : Buffer.from(record)
      if (!cuts) changed[at] = byte
      const lines = changed.toString('latin1').split('\n').filter(Boolean)
      try {
        const parsed = lines.map((line) => parseRecordLine(Buffer.from(line, 'latin1')))
        if (parsed.some((line) => typeof line === 'string')) return
        await replayOf(parsed as RecordLine[])
      } catch (error) {
        assert.ok(isAppError(error, 'bad_request'), String(error))
      }
    }),
    { numRuns: 500 },
  )
})

const replayed = async (t: TestContext, record: string | Buffer, ...words: string[]) => {
  const file = join(await tempDir(t), 'record.jsonl')
  await writeFile(file, record)
  return { file, ...(await runCli(['replay', file, ...words])) }
}

test('replay exits with 0 if the results are equal, and with 1 and the position if they differ', async (t) => {
  const record = finished(await recordOf())
  const same = await replayed(t, record)
  assert.deepEqual([same.status, same.stderr], [0, ''])
  assert.equal(same.stdout, 'ok       5 results of 1 run are equal to the record\n')
  const other = await replayed(t, record.replace('"exit_code":2', '"exit_code":3'))
  assert.equal(other.status, 1)
  assert.match(other.stdout, /^differs {2}\S+record\.jsonl:\d+: exit_code of run run_1\n {9}recorded {2}3\n {9}replayed {2}2\n$/)
  const json = await replayed(t, record.replace('"exit_code":2', '"exit_code":3'), '--json')
  assert.equal(json.status, 1)
  const { ok, reason, difference } = JSON.parse(json.stdout) as {
    ok: boolean
    reason: string
    difference: { line: number; field: string }
  }
  assert.deepEqual([ok, reason, difference.field, difference.line], [false, 'differs', 'exit_code', 11])
})

test('an invalid record gives exit status 2 with its line and problem', async (t) => {
  const record = await recordOf()
  const lines = record.trimEnd().split('\n')
  const bad: readonly (readonly [string, RegExp])[] = [
    ['', /:0: it is empty/],
    [lines[0]!, /:1: the line is cut off/],
    [`${finished(record)}{"event":`, /:15: the line is cut off/],
    [`${finished(record)}${lines[1]}\n`, /:15: a line after the end of the record/],
    [`${finished(record).slice(0, -2)},"more":1}\n`, /:14: unknown field "more"/],
    [`${'x'.repeat(MAX_RECORD_LINE + 1)}\n`, /:1: it is longer than \d+ bytes/],
    ['x'.repeat(MAX_RECORD_LINE + 1), /:1: the line is cut off/],
    [`${lines[0]}\n${'['.repeat(1_000)}\n`, /:2: it is nested too deeply/],
    [`${lines[0]}\nnonsense\u001b[2J\n`, /:2: it is not JSON/],
    [`${lines[0]}\n{"event":"\u001b[2J"}\n`, /:2: unknown event|:2: it is not JSON/],
    [`${lines[0]}\n{"event":"toString"}\n`, /:2: unknown event/],
    [`${lines[0]}\n${lines[1]!.replace('"args"', '"argv"')}\n`, /:2: request\.args is missing/],
    [`${lines[0]}\n${lines[1]!.replace('{', '{"more":1,')}\n`, /:2: unknown field "more"/],
    [lines.slice(2).join('\n'), /:1: the first line is not a "record"/],
  ]
  for (const [text, reason] of bad) {
    const { status, stdout, stderr } = await replayed(t, text)
    assert.deepEqual([status, stdout], [2, ''], String(reason))
    assert.match(stderr, reason)
    assert.ok(!stderr.includes('\u001b'))
  }
  assert.equal((await runCli(['replay', '/nowhere/record'])).status, 2)
})

const outcomeOf = async (t: TestContext, record: string) => {
  const { status, stdout } = await replayed(t, record, '--json')
  const { ok, reason, results } = JSON.parse(stdout) as { ok: boolean; reason: string | null; results: number }
  return { status, ok, reason, results }
}

test('a record that was cut is checked as far as it goes and reported as not finished', async (t) => {
  const record = await recordOf()
  const lines = finished(record).trimEnd().split('\n')
  assert.deepEqual(await outcomeOf(t, finished(record)), { status: 0, ok: true, reason: null, results: 5 })
  for (let count = 1; count < lines.length; count++) {
    const whole = `${lines.slice(0, count).join('\n')}\n`
    const one = await outcomeOf(t, whole)
    assert.deepEqual([one.status, one.ok, one.reason], [1, false, 'not_finished'], `${count} lines`)
    assert.deepEqual(await outcomeOf(t, `${whole}${lines[count]!.slice(0, -1)}`), one)
  }
  const { status, stdout } = await replayed(t, record)
  assert.equal(status, 1)
  assert.match(
    stdout,
    /5 results of 1 run are equal to the record\nfails {4}\S+record\.jsonl is not finished: its server was killed or could not write/,
  )
  const differs = await outcomeOf(t, record.replace('"exit_code":2', '"exit_code":3'))
  assert.deepEqual([differs.status, differs.reason], [1, 'differs'])
})

test('a record whose lines were removed, repeated or changed is reported as altered', async (t) => {
  const lines = finished(await recordOf())
    .trimEnd()
    .split('\n')
  const parts = lines.flatMap((line, at) => (line.startsWith('{"event":"result"') || line.startsWith('{"event":"part"') ? [at] : []))
  const changed = [
    ...parts.flatMap((at) => [lines.toSpliced(at, 1), lines.toSpliced(at, 0, lines[at]!)]),
    lines.with(0, lines[0]!.replace('a test', 'another')),
    lines.with(lines.length - 1, lines.at(-1)!.replace(/"lines":\d+/, '"lines":1')),
    lines.with(lines.length - 1, lines.at(-1)!.replace(/"sha256":"../, '"sha256":"zz')),
    lines.map((line) => line.replace('{"', '{ "')),
  ]
  for (const [number, one] of changed.entries()) {
    const { status, ok, reason } = await outcomeOf(t, `${one.join('\n')}\n`)
    assert.deepEqual([status, ok, reason], [1, false, 'altered'], `${number}`)
  }
  assert.match((await replayed(t, `${changed[0]!.join('\n')}\n`)).stdout, /record\.jsonl is altered: /)
})

test('a result with an additional field differs, and a false claim about dropped text is refused', async () => {
  const lines = linesOf(await recordOf())
  const last = lines.findLastIndex(({ event }) => event === 'result')
  const withResult = (change: (line: Record<string, unknown>) => void): RecordLine[] =>
    lines.map((line, at) => {
      const text = JSON.stringify(line)
      const copy = JSON.parse(text) as Record<string, unknown>
      if (at === last) change(copy)
      return copy as unknown as RecordLine
    })
  const odd = withResult((line) => (line['result'] = JSON.parse('{"__proto__":{},' + JSON.stringify(line['result']).slice(1))))
  assert.deepEqual((await replayOf(odd)).difference?.field, '__proto__')
  const claimed = withResult((line) => Object.assign(line, { of_dropped: true, result: {} }))
  await assert.rejects(replayOf(claimed), { code: 'bad_request' })
})

test('the results of the oldest runs over the limit are not compared, but counted', async () => {
  const lines: Buffer[] = []
  const recorder = new LineRecorder({ clock: new ManualClock(), write: (line) => void lines.push(line) }, { whoami: 'a test' })
  const runs = Array.from({ length: 4 * MAX_KEYS + 1 }, (_item, n) => {
    const run = new ToolRun({ id: `run_${n}`, request: REQUEST, askedAt: n, recorder })
    run.refuse(new AppError('command_denied', 'no'))
    run.dropText()
    return run
  })
  for (const run of [runs[0], runs[1], runs.at(-1)]) run?.result(VIEW)
  const { replay, difference } = await replayOf(linesOf(lines.join('')))
  assert.deepEqual([difference, replay.runs, replay.results, replay.unchecked, replay.interrupted], [null, runs.length, 2, 1, 0])
})
