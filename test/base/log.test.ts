import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { createLogger, silentLogger, type LoggerInit } from '../../src/base/log.ts'
import { tempDir } from '../support/temp-dir.ts'

const capture = (init: Partial<LoggerInit> = {}) => {
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({ name: 'x0xd', ...init, destination: { write: (line) => lines.push(JSON.parse(line)) } })
  return { logger, lines }
}

test('the logger drops debug and info lines by default', () => {
  const { logger, lines } = capture()
  logger.debug('a')
  logger.info('b')
  logger.warn('c')
  logger.error('d')
  assert.deepEqual(
    lines.map((line) => line['msg']),
    ['c', 'd'],
  )
})

test('a line is JSON with level, name, ISO time, message and fields', () => {
  const { logger, lines } = capture({ level: 'debug' })
  logger.child({ part: 'mesh' }).debug({ peer: 'abcdef01' }, 'dialled')
  const [line] = lines
  assert.equal(line?.['level'], 'debug')
  assert.equal(line?.['name'], 'x0xd')
  assert.equal(line?.['part'], 'mesh')
  assert.equal(line?.['peer'], 'abcdef01')
  assert.equal(line?.['msg'], 'dialled')
  assert.ok(!Number.isNaN(Date.parse(String(line?.['time']))))
})

test('secrets are redacted at the top, nested, and in the bindings of a child', () => {
  const { logger, lines } = capture()
  const secret = 'hunter2'
  logger.warn({ token: secret, stdin: secret, request: { headers: { authorization: secret }, key: secret } }, 'x')
  logger.child({ secret }).error('y')
  assert.equal(lines.length, 2)
  assert.ok(!JSON.stringify(lines).includes(secret))
  assert.ok(JSON.stringify(lines).includes('[redacted]'))
})

test('untrusted text cannot forge a log line', () => {
  const written: string[] = []
  const logger = createLogger({ name: 'x0xd', destination: { write: (line) => void written.push(line) } })
  logger.warn({ argv: 'a\n{"level":"error","msg":"forged"}\n' }, 'one\ntwo')
  assert.equal(written.join('').trimEnd().split('\n').length, 1)
})

test("a line for systemd's journal has a priority and no time", () => {
  const written: string[] = []
  const logger = createLogger({ name: 'x0xd', level: 'debug', journald: true, destination: { write: (line) => void written.push(line) } })
  logger.debug('a')
  logger.child({ part: 'mesh' }).info({ level: 'error' }, 'b')
  logger.warn('c')
  logger.error('<0>d')
  assert.deepEqual(
    written.map((line) => line.slice(0, 3)),
    ['<7>', '<6>', '<4>', '<3>'],
  )
  for (const line of written) assert.ok(!('time' in JSON.parse(line.slice(3))), line)
})

test('the log uses the journal format only if JOURNAL_STREAM names the file of standard error', async (t) => {
  const file = await open(join(await tempDir(t), 'log'), 'w+')
  t.after(async () => file.close())
  const { dev, ino } = await file.stat({ bigint: true })
  const log = new URL('../../src/base/log.ts', import.meta.url).href
  const program = `import('${log}').then(({ createLogger }) => createLogger({ name: 'x0xd' }).warn('said'))`
  for (const JOURNAL_STREAM of [`${dev}:${ino}`, `${dev}:${ino + 1n}`, undefined])
    spawnSync(process.execPath, ['-e', program], { env: { JOURNAL_STREAM }, stdio: ['ignore', 'ignore', file.fd] })
  const lines = (await readFile(`/proc/self/fd/${file.fd}`, 'utf8')).trim().split('\n')
  assert.deepEqual(
    lines.map((line) => [line.startsWith('<4>{'), line.includes('"time":')]),
    [
      [true, false],
      [false, true],
      [false, true],
    ],
  )
})

test('the silent logger and its children accept every call', () => {
  silentLogger.child({ a: 1 }).error({ b: 2 }, 'nothing')
})
