import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError, isAppError } from '../../src/base/errors.ts'
import { startAll, stopAll, type StartableEntry } from '../../src/base/startable.ts'

const recording = (events: string[], name: string): StartableEntry => ({
  name,
  startable: { start: () => void events.push(`start ${name}`), stop: async () => void events.push(`stop ${name}`) },
})

const never = (): Promise<void> => new Promise(() => undefined)

test('components start in order and stop in reverse order', async () => {
  const events: string[] = []
  const entries = ['a', 'b', 'c'].map((name) => recording(events, name))
  await startAll(entries)
  assert.deepEqual(await stopAll(entries), [])
  assert.deepEqual(events, ['start a', 'start b', 'start c', 'stop c', 'stop b', 'stop a'])
})

test('a component without start and stop is accepted', async () => {
  const entries = [{ name: 'plain', startable: {} }]
  await startAll(entries)
  assert.deepEqual(await stopAll(entries), [])
})

test('after a failed start, that component and the started ones stop, and later ones do not start', async () => {
  const events: string[] = []
  const failing: StartableEntry = {
    name: 'bad',
    startable: {
      start: () => Promise.reject(new AppError('bad_config', 'no port')),
      stop: () => void events.push('stop bad'),
    },
  }
  await assert.rejects(startAll([recording(events, 'a'), failing, recording(events, 'c')]), (error) => isAppError(error, 'bad_config'))
  assert.deepEqual(events, ['start a', 'stop bad', 'stop a'])
})

test('the error of a failed start keeps its code and names components that could not be stopped', async () => {
  const stuck: StartableEntry = { name: 'stuck', startable: { stop: () => Promise.reject(new Error('jammed')) } }
  const failing: StartableEntry = { name: 'bad', startable: { start: () => Promise.reject(new AppError('bad_acl', 'line 3')) } }
  await assert.rejects(startAll([stuck, failing]), (error) => {
    assert.ok(isAppError(error, 'bad_acl'))
    assert.match(error.message, /line 3 \(not stopped: stuck: jammed\)/)
    return true
  })
})

test('a start that exceeds its deadline gives a timeout, gets an aborted signal, and is stopped', async () => {
  let seen: AbortSignal | undefined
  let stopped = false
  const slow: StartableEntry = {
    name: 'slow',
    deadlineMs: 5,
    startable: {
      start: (signal) => {
        seen = signal
        return never()
      },
      stop: () => {
        stopped = true
      },
    },
  }
  await assert.rejects(startAll([slow]), (error) => isAppError(error, 'timeout') && /starting slow/.test(error.message))
  assert.equal(seen?.aborted, true)
  assert.equal(stopped, true)
})

test('stopping continues after a component that throws or hangs, and reports both', async () => {
  const events: string[] = []
  const failures = await stopAll([
    recording(events, 'a'),
    { name: 'throws', startable: { stop: () => Promise.reject(new Error('no')) } },
    { name: 'hangs', deadlineMs: 5, startable: { stop: never } },
    recording(events, 'd'),
  ])
  assert.deepEqual(events, ['stop d', 'stop a'])
  assert.deepEqual(
    failures.map((failure) => failure.name),
    ['hangs', 'throws'],
  )
  assert.ok(isAppError(failures[0]?.error, 'timeout'))
})
