import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'

import { errnoOf } from '../../src/base/errors.ts'
import { wholeLines } from '../../test/support/journal.ts'
import type { CliResult, JournalLineJson } from '../../test/support/mesh-of-daemons.ts'
import { digestOf, type Copy, type CopyWorld } from './world.ts'

/** Result of one `x0x cp`. */
export interface CopyAnswer {
  readonly copy: Copy
  /** Whether it reported the file as copied. */
  readonly ok: boolean
  readonly status: number
  readonly stderr: string
}

export const answerOf = (copy: Copy, { status, stdout, stderr }: CliResult): CopyAnswer => {
  const told = wholeLines(stdout.toString()).map((line) => JSON.parse(line) as Record<string, unknown>)
  assert.ok(told.length <= 1, `${copy.name}: ${stdout.toString()}`)
  const ok = told[0]?.['ok'] === true
  if (ok) {
    const { size, sha256, direction } = copy
    assert.equal(told[0]!['bytes'], size, copy.name)
    if (direction === 'up' || told[0]!['sha256'] !== undefined) assert.equal(told[0]!['sha256'], sha256, copy.name)
  }
  if (status === 0) assert.ok(ok, `${copy.name}: status 0 without a line that says so`)
  if (ok) assert.ok(status === 0 || status === 137, `${copy.name}: reported as copied, with status ${status}`)
  return { copy, ok, status, stderr }
}

/** State of the destination. Throws unless it is absent, the old file or the whole new file. */
export const stateOf = async ({ name, target, sha256, oldSha256 }: Copy): Promise<'absent' | 'old' | 'whole'> => {
  const data = await readFile(target).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return null
    throw error
  })
  if (data === null) {
    assert.equal(oldSha256, null, `${name}: the old file is gone`)
    return 'absent'
  }
  const found = digestOf(data)
  if (found === sha256) return 'whole'
  assert.equal(found, oldSha256, `${name}: ${data.length} bytes that are neither the old file nor the new one`)
  return 'old'
}

/** Checks that the destination is never a mix, and that a reported copy is whole and leaves no other file. */
export const assertCopied = async ({ copy, ok }: CopyAnswer): Promise<void> => {
  const state = await stateOf(copy)
  if (!ok) return
  assert.equal(state, 'whole', `${copy.name}: reported as copied`)
  assert.deepEqual(await readdir(copy.directory), ['file'], copy.name)
}

/** Checks that a copy without room on the disk reports it and leaves no partial file. */
export const assertNoRoom = async ({ copy, ok, status, stderr }: CopyAnswer): Promise<void> => {
  if (ok) return
  assert.equal(status, 1, `${copy.name}: ${stderr}`)
  assert.match(stderr, /ENOSPC|EDQUOT/, copy.name)
  assert.deepEqual(await readdir(copy.directory), copy.oldSha256 === null ? [] : ['file'], copy.name)
}

const isExit = (line: JournalLineJson): boolean => line.event === 'exit' && line['code'] === 0

/** SHA-256 of the output of `@hash` for this file. */
const printedSha256 = ({ size, sha256 }: Copy): string => digestOf(Buffer.from(`${JSON.stringify({ size, sha256 })}\n`))

/** The command that completes a copy, with the hash of its output. For an empty file this is `@stat`. */
const lastCommandOf = (copy: Copy): string => {
  const { direction, target, source, sha256, size } = copy
  // A `@write` whose data has another SHA-256 fails.
  if (direction === 'up') return ['@write', target, `sha256=${sha256}`, ''].join(' ')
  return size === 0 ? ['@stat', source, undefined, ''].join(' ') : ['@hash', source, undefined, printedSha256(copy)].join(' ')
}

/** Checks that both logs have the same requests, and that they contain the commands of each reported copy. */
export const assertLogged = async (world: CopyWorld, answers: readonly CopyAnswer[]): Promise<void> => {
  const lines = await world.bob.journal()
  const byId = Map.groupBy(lines, ({ request_id }) => request_id)
  const asked = new Map(
    wholeLines(await readFile(world.requestsFile, 'utf8'))
      .map((line) => JSON.parse(line) as JournalLineJson)
      .filter(({ event }) => event === 'asked')
      .map((line) => [line.request_id, line]),
  )
  const done = new Map<string, number>()
  for (const request of lines.filter(({ event }) => event === 'request')) {
    const { request_id: id, argv } = request
    assert.deepEqual(asked.get(id)?.['argv'], argv, `request ${id} is not in the log of requests`)
    assert.equal(asked.get(id)?.['stdin_bytes'], request['stdin_bytes'], id)
    const exit = byId.get(id)!.find(isExit)
    if (exit === undefined) continue
    const [op, path, ...options] = argv as string[]
    const announced = options.find((option) => option.startsWith('sha256='))
    const key = [op, path, announced, op === '@hash' ? exit['stdout_sha256'] : ''].join(' ')
    done.set(key, (done.get(key) ?? 0) + 1)
  }
  for (const [copy, same] of Map.groupBy(answers, (answer) => answer.copy)) {
    const count = done.get(lastCommandOf(copy)) ?? 0
    const reported = same.filter(({ ok }) => ok).length
    assert.ok(count >= reported, `${copy.name}: reported ${reported} times, in the audit log ${count} times`)
  }
}

export const assertLogsWhole = async ({ alice, bob }: CopyWorld): Promise<void> => {
  for (const [daemon, flags] of [
    [bob, []],
    [alice, ['--outgoing']],
  ] as const) {
    const { status, stdout, stderr } = await daemon.cli(['audit', 'verify', ...flags])
    assert.equal(status, 0, `${daemon.name} ${flags.join()}: ${stdout.toString()}${stderr}`)
  }
}
