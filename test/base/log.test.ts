import assert from 'node:assert/strict'
import { test } from 'node:test'

import { createLogger, silentLogger, type LoggerInit } from '../../src/base/log.ts'

const capture = (init: Partial<LoggerInit> = {}) => {
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({ name: 'x0xd', ...init, destination: { write: (line) => lines.push(JSON.parse(line)) } })
  return { logger, lines }
}

test('is quiet below warn unless told otherwise', () => {
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

test('text from outside cannot forge a line', () => {
  const written: string[] = []
  const logger = createLogger({ name: 'x0xd', destination: { write: (line) => void written.push(line) } })
  logger.warn({ argv: 'a\n{"level":"error","msg":"forged"}\n' }, 'one\ntwo')
  assert.equal(written.join('').trimEnd().split('\n').length, 1)
})

test('the silent logger takes everything and its child too', () => {
  silentLogger.child({ a: 1 }).error({ b: 2 }, 'nothing')
})
