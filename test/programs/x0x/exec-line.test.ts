import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { parseExecLine } from '../../../src/programs/x0x/exec-line.ts'
import { buildProgram } from '../../../src/programs/x0x/program.ts'

/** What the whole program makes of a line that is an exec, or null. */
const wholeProgram = (argv: readonly string[]): unknown => {
  const dashes = argv.indexOf('--')
  const program = buildProgram({
    version: '0',
    context: () => assert.fail('nothing is run here'),
    done: () => undefined,
    behindDashes: dashes === -1 ? null : argv.slice(dashes + 1),
  })
  const exec = program.commands.find((command) => command.name() === 'exec')!
  const found: unknown[] = []
  exec.action((agent: string | undefined, words: string[], flags: Record<string, unknown>) => {
    found.push({ globals: program.opts(), agent, argv: words, flags })
  })
  for (const command of [program, exec, ...program.commands, ...exec.commands])
    command.exitOverride().configureOutput({ writeOut: () => undefined, writeErr: () => undefined })
  try {
    program.parse([...argv], { from: 'user' })
  } catch {
    return null
  }
  return found[0] ?? null
}

/** The same, of the quick reader. */
const quickly = (argv: readonly string[]): unknown => {
  const line = parseExecLine(argv)
  if (line === null) return null
  const { agent, argv: words, timeout, stdinFile, raw } = line.exec
  const flags = { ...(timeout === null ? {} : { timeout }), ...(stdinFile === null ? {} : { stdinFile }), ...(raw ? { raw } : {}) }
  return { globals: line.globals, agent, argv: words, flags }
}

test('plain lines are read at once', () => {
  assert.deepEqual(parseExecLine(['exec', 'bob', '--', 'echo', '42']), {
    globals: {},
    exec: { agent: 'bob', argv: ['echo', '42'], timeout: null, stdinFile: null, raw: false },
  })
  const all = '--name n --data-dir /d exec --timeout 3 bob --stdin-file - --raw --json --api http://x -- a -- --json'.split(' ')
  assert.deepEqual(parseExecLine(all), {
    globals: { name: 'n', dataDir: '/d', api: 'http://x', json: true },
    exec: { agent: 'bob', argv: ['a', '--', '--json'], timeout: '3', stdinFile: '-', raw: true },
  })
})

test('whatever is not plainly an exec is left to the whole program', () => {
  for (const line of [
    '',
    'exec',
    'exec bob',
    'exec bob --',
    'exec -- x',
    'exec bob carol -- x',
    'id -- x',
    'bob exec -- x',
    'exec sessions -- x',
    'exec cancel -- x',
    'exec help -- x',
    'exec bob --cancel ID -- x',
    'exec bob --timeout=3 -- x',
    'exec bob --timeout -- x',
    'exec bob --timeout -3 -- x',
    'exec bob --timeout 3 --timeout 4 -- x',
    'exec bob --stdin-file --json -- x',
    'exec bob --json --json -- x',
    'exec bob --help -- x',
    'exec bob -h -- x',
    '--raw exec bob -- x',
    '--timeout 3 exec bob -- x',
    'exec -x -- x',
    'exec - -- x',
  ])
    assert.equal(parseExecLine(line.split(' ')), null, line)
  assert.equal(parseExecLine(['exec', '', '--', 'x']), null)
  assert.equal(parseExecLine(['exec', 'bob', '--name', '', '--', 'x']), null)
})

test('what is read at once is read as the whole program reads it', () => {
  const word = fc.constantFrom(
    ...'exec exec bob bob carol id sessions cancel help 3 - -- -- x -x --json --raw --name --data-dir --api --timeout --stdin-file --timeout=3 --help --cancel'.split(
      ' ',
    ),
    '',
  )
  let read = 0
  const check = (argv: readonly string[]): void => {
    const quick = quickly(argv)
    if (quick === null) return
    read += 1
    assert.deepEqual(quick, wholeProgram(argv))
  }
  fc.assert(fc.property(fc.array(word, { maxLength: 10 }), check), { numRuns: 3_000 })
  // Most of these are plain.
  const value = fc.constantFrom('3', 'x', '-', 'exec', 'bob')
  const option = fc.oneof(
    fc.constantFrom(['--json'], ['--raw']),
    fc.tuple(fc.constantFrom('--name', '--data-dir', '--api', '--timeout', '--stdin-file'), value),
  )
  const options = fc.array(option, { maxLength: 2 }).map((list) => list.flat())
  fc.assert(
    fc.property(options, options, options, fc.array(word, { minLength: 1, maxLength: 3 }), (a, b, c, argv) =>
      check([...a, 'exec', ...b, 'bob', ...c, '--', ...argv]),
    ),
    { numRuns: 1_000 },
  )
  assert.ok(read > 300, `only ${read} were plain`)
})
