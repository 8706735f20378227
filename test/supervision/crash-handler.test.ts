import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const MODULE = fileURLToPath(new URL('../../src/supervision/crash-handler.ts', import.meta.url))

/** What a process says and does after this mistake. */
const after = (strays: 'stop' | 'tell', mistake: string): string => {
  const code = `import { firstCrash } from ${JSON.stringify(MODULE)}
    const log = { error: (fields, text) => console.log(text) }
    void firstCrash(log, { strays: ${JSON.stringify(strays)} }).then((error) => console.log('stops: ' + error.message))
    setTimeout(() => console.log('goes on'), 100)
    ${mistake}`
  return spawnSync(process.execPath, ['--input-type=module', '--eval', code], { encoding: 'utf8', timeout: 30_000 }).stdout
}

test('what is thrown stops every process; a promise that nobody waited for stops those that decide', () => {
  const thrown = `setImmediate(() => { throw new Error('oh') })`
  const stray = `void Promise.reject(new Error('oh'))`
  for (const [strays, mistake] of [
    ['stop', thrown],
    ['tell', thrown],
    ['stop', stray],
    ['stop', `void Promise.reject('oh')`],
  ] as const)
    assert.match(after(strays, mistake), /^stopping after a mistake\nstops: oh\n/, `${strays} ${mistake}`)
  assert.equal(after('tell', stray), 'a promise failed and nobody had waited for it\ngoes on\n')
})

test('a second mistake while all is being stopped is told, and is not the runtime’s to end us with', () => {
  const twice = `void Promise.reject(new Error('one')); setImmediate(() => { throw new Error('two') })`
  const said = after('stop', twice).split('\n').filter(Boolean)
  assert.deepEqual(said.toSorted(), ['goes on', 'stopping after a mistake', 'stopping after a mistake', 'stops: one'])
})
