import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const MODULE = fileURLToPath(new URL('../../src/cli/exit.ts', import.meta.url))

/** Output of a process after this failure. */
const after = (unhandledRejections: 'stop' | 'log', failing: string): string => {
  const code = `import { firstCrash } from ${JSON.stringify(MODULE)}
    const log = { error: (fields, text) => console.log(text) }
    void firstCrash(log, { unhandledRejections: ${JSON.stringify(unhandledRejections)} }).then((error) => console.log('stops: ' + error.message))
    setTimeout(() => console.log('goes on'), 100)
    ${failing}`
  return spawnSync(process.execPath, ['--input-type=module', '--eval', code], { encoding: 'utf8', timeout: 30_000 }).stdout
}

test('an uncaught exception stops every process, and an unhandled rejection stops those set to stop', () => {
  const thrown = `setImmediate(() => { throw new Error('oh') })`
  const stray = `void Promise.reject(new Error('oh'))`
  for (const [unhandledRejections, failing] of [
    ['stop', thrown],
    ['log', thrown],
    ['stop', stray],
    ['stop', `void Promise.reject('oh')`],
  ] as const)
    assert.match(after(unhandledRejections, failing), /^stopping after an uncaught error\nstops: oh\n/, `${unhandledRejections} ${failing}`)
  assert.equal(after('log', stray), 'a rejected promise had no handler\ngoes on\n')
})

test('a second error during the stop is logged and does not end the process', () => {
  const twice = `void Promise.reject(new Error('one')); setImmediate(() => { throw new Error('two') })`
  const said = after('stop', twice).split('\n').filter(Boolean)
  assert.deepEqual(said.toSorted(), ['goes on', 'stopping after an uncaught error', 'stopping after an uncaught error', 'stops: one'])
})
