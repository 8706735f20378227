import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { AppError } from '../../src/base/errors.ts'
import { BUNDLE } from '../../src/cli/programs.ts'
import { DESK } from '../../src/cli/programs.ts'
import { MCP } from '../../src/cli/programs.ts'
import { UI } from '../../src/cli/programs.ts'
import { parseCommandLine, type CommandLine } from '../../src/cli/parse.ts'
import { helpText } from '../../src/cli/help.ts'
import { REXD, REXD_EXEC } from '../../src/cli/rexd.ts'
import { REXEC } from '../../src/cli/rexec.ts'
import { inSingleFile, X0X } from '../../src/cli/x0x.ts'
import { X0XD } from '../../src/cli/programs.ts'

const usage = (problem: string, command: string): AppError => new AppError('bad_request', `${command}: ${problem}`)
const parse = (line: string, program = X0X) => parseCommandLine(program, line === '' ? [] : line.split(' '), usage)

const lineOf = (text: string, program = X0X): CommandLine => {
  const parsed = parse(text, program)
  return parsed.kind === 'line' ? parsed.line : assert.fail(`${text} is ${parsed.kind}`)
}

const OPTIONS = ['name', 'data-dir', 'api', 'json', 'timeout', 'stdin-file', 'raw', 'cancel']

const said = (text: string): object => {
  const line = lineOf(text)
  const given = OPTIONS.filter((name) => line.has(name)).map((name) => [name, line.value(name)])
  return { command: line.command, words: line.words, behind: line.behindDashes, given: Object.fromEntries(given) }
}

test('a line is parsed into a command, its options, the global options and arguments', () => {
  assert.deepEqual(said('exec bob -- echo 42'), { command: 'exec', words: ['bob'], behind: ['echo', '42'], given: {} })
  assert.deepEqual(said('--name n --data-dir /d exec --timeout 3 bob --stdin-file - --raw --json --api http://x -- a -- --json'), {
    command: 'exec',
    words: ['bob'],
    behind: ['a', '--', '--json'],
    given: { name: 'n', 'data-dir': '/d', api: 'http://x', json: '', timeout: '3', 'stdin-file': '-', raw: '' },
  })
  assert.deepEqual(said('exec bob --timeout=3 --timeout -3 -- x').valueOf(), {
    command: 'exec',
    words: ['bob'],
    behind: ['x'],
    given: { timeout: '-3' },
  })
  assert.deepEqual(lineOf('contacts pin bob -- -m').words, ['bob', '-m'])
  assert.deepEqual(lineOf('audit tail -fn5 x').value('lines'), '5')
  assert.equal(lineOf('audit tail').value('lines'), '20')
  assert.equal(lineOf('audit tail').has('lines'), false)
  assert.equal(lineOf('exec sessions').command, 'exec sessions')
  assert.deepEqual(lineOf('--cwd /x -- ls -l', REXD_EXEC).words, ['ls', '-l'])
})

test('a misplaced, malformed or unknown option or command is refused by the command that it belongs to', () => {
  for (const [line, text] of [
    ['--raw exec bob -- x', 'x0x: unknown option --raw'],
    ['--timeout 3 exec bob -- x', 'x0x: unknown option --timeout'],
    ['exec --raw sessions', 'x0x exec sessions: unknown option --raw'],
    ['exec bob --json=1 -- x', 'x0x exec: unknown option --json=1. Did you mean --json?'],
    ['exec bob --no-json -- x', 'x0x exec: unknown option --no-json. Did you mean --json?'],
    ['exec bob --timeout -- x', 'x0x exec: --timeout <secs>: a value is missing'],
    ['exec bob --timeout', 'x0x exec: --timeout <secs>: a value is missing'],
    ['exec -x -- x', 'x0x exec: unknown option -x'],
    ['exec bob --__proto__ 1 -- x', 'x0x exec: unknown option --__proto__'],
    ['constructor', 'x0x: unknown command "constructor"'],
    ['exce', 'x0x: unknown command "exce". Did you mean exec?'],
    ['ssh', 'x0x: unknown command "ssh". Did you mean exec?'],
    ['run', 'x0x: unknown command "run". Did you mean one of exec, runs?'],
    ['approvals allow', 'x0x approvals: unknown command "allow". Did you mean approve?'],
    ['contacts npin', 'x0x contacts: unknown command "npin". Did you mean one of pin, unpin?'],
    ['contacts pin bob', 'x0x contacts pin: missing argument <machine>'],
    ['peers -- x', 'x0x peers: too many arguments for "peers": expected 0, got 1'],
  ] as const)
    assert.throws(() => parse(line), { message: text }, line)
  assert.throws(() => parse('--ssh a --url b -- x', REXD_EXEC), /--ssh cannot be used with --url/)
  assert.throws(() => parse('--stdio --json', REXD), /--json needs --check$/)
  assert.throws(() => parse('--json', X0XD), /--json needs --check or --doctor/)
  assert.equal(lineOf('--json --doctor', X0XD).has('json'), true)
  assert.throws(() => parse('ls -l', REXD_EXEC), /missing "--" before the command\nTry: .* -- ls .*-l/)
  assert.throws(() => parse('--name lab exec bob --json df -h'), {
    message: 'x0x exec: missing "--" before the command\nTry: x0x --name lab exec bob --json -- df -h',
  })
  // Without the refusal, each of these lines would exit with 0 although no command ran.
  for (const line of ['exec bob df -h', 'exec bob node --version', 'exec bob tar --help', 'invite bob df -h', 'doctor bob df -h'])
    assert.throws(() => parse(line), /missing "--" before the command\nTry: .* -- (?:df|node|tar) /, line)
})

test('--help and help apply to the command before them, and a group without a command shows unrequested help', () => {
  for (const [line, command, asked] of [
    ['--help', 'x0x', true],
    ['--help exec', 'x0x', true],
    ['exec bob --help -- x', 'exec', true],
    ['exec bob --raw --help', 'exec', true],
    ['contacts help', 'contacts', true],
    ['contacts help --help', 'contacts', true],
    ['contacts help pin --help', 'pin', true],
    ['help --help', 'x0x', true],
    ['contacts help pin', 'pin', true],
    ['help', 'x0x', true],
    ['help exec', 'exec', true],
    ['exec help', 'exec', true],
    ['exec help cancel', 'cancel', true],
    ['id help', 'id', true],
    ['contacts', 'contacts', false],
    ['--json', 'x0x', false],
    ['', 'x0x', false],
  ] as const) {
    const parsed = parse(line)
    assert.ok(parsed.kind === 'help', line)
    assert.deepEqual([parsed.path.at(-1)?.name, parsed.asked], [command, asked], line)
  }
  assert.equal(parse('exec bob --version -- x').kind, 'version')
  // An agent may have this name.
  assert.deepEqual(lineOf('exec help -- id').words, ['help'])
  assert.deepEqual(lineOf('exec bob -- --help --version').behindDashes, ['--help', '--version'])
})

test('words after -- are never read as options, and every other line gives a command, help, the version or an error', () => {
  const word = fc.constantFrom(
    ...'exec bob carol id sessions cancel help 3 - -- x -x --json --raw --name --api --timeout --stdin-file --timeout=3 --help --cancel'.split(
      ' ',
    ),
    '',
  )
  let read = 0
  const value = fc.constantFrom('3', 'x', '-', 'exec', 'bob')
  const option = fc.oneof(
    fc.constantFrom(['--json'], ['--raw']),
    fc.tuple(fc.constantFrom('--name', '--api', '--timeout', '--stdin-file'), value),
  )
  const options = fc.array(option, { maxLength: 3 }).map((list) => list.flat())
  fc.assert(
    fc.property(options, options, fc.array(word, { minLength: 1, maxLength: 4 }), (a, b, argv) => {
      const parsed = parseCommandLine(X0X, ['exec', ...a, 'bob', ...b, '--', ...argv], usage)
      assert.ok(parsed.kind === 'line')
      read += 1
      assert.deepEqual([parsed.line.command, parsed.line.words, parsed.line.behindDashes], ['exec', ['bob'], argv])
      const [all, json]: [string[], boolean[]] = [
        [...a, ...b],
        ['--json', '--raw'].map((flag) => ([...a, ...b] as string[]).includes(flag)),
      ]
      assert.deepEqual([parsed.line.has('json'), parsed.line.has('raw')], json)
      const at = all.lastIndexOf('--timeout')
      assert.equal(parsed.line.value('timeout'), at === -1 ? null : all[at + 1])
    }),
    { numRuns: 1_000 },
  )
  assert.equal(read, 1_000)
  // Any words give a line, help, the version or an error.
  fc.assert(
    fc.property(fc.array(word, { maxLength: 10 }), (argv) => {
      try {
        parseCommandLine(X0X, argv, usage)
      } catch (error) {
        assert.ok(error instanceof AppError)
      }
    }),
    { numRuns: 2_000 },
  )
})

test('an unknown option is refused even with --help or --version', () => {
  for (const program of [X0X, X0XD, REXD, REXEC, REXD_EXEC, MCP, UI, DESK, BUNDLE])
    for (const line of ['--frob', '--frob --help', '--help --frob', '-h --frob', '--frob --version'])
      assert.throws(() => parse(line, program), /unknown option --frob/, `${program.name} ${line}`)
  for (const line of ['exec bob --frob --help', '--frob exec --help', 'contacts pin --frob -h', 'exec bob --help --frob'])
    assert.throws(() => parse(line), /unknown option --frob/, line)
})

test('an unknown command is refused even with --help or after help', () => {
  for (const [lines, text] of [
    [['frobnicate', 'frobnicate --help', '--help frobnicate', '-h frobnicate', 'help frobnicate'], 'x0x: unknown command "frobnicate"'],
    [['exce', 'exce --help', 'help exce'], 'x0x: unknown command "exce". Did you mean exec?'],
    [
      ['contacts unpn', 'contacts unpn --help', 'help contacts unpn', 'contacts help unpn'],
      'x0x contacts: unknown command "unpn". Did you mean unpin?',
    ],
    [['ping a b', 'ping a b --help'], 'x0x ping: too many arguments for "ping": expected 1, got 2'],
  ] as const)
    for (const line of lines) assert.throws(() => parse(line), { message: text }, line)
  for (const program of [X0XD, REXD])
    for (const line of ['frobnicate', 'frobnicate --help', '--help frobnicate'])
      assert.throws(() => parse(line, program), { message: `${program.name}: too many arguments: expected 0, got 1` }, line)
  assert.throws(() => parse('frobnicate --help', REXEC), AppError)
  for (const line of ['help contacts pin', 'contacts pin --help', 'contacts help pin']) {
    const parsed = parse(line)
    assert.deepEqual([parsed.kind, parsed.kind === 'help' && parsed.path.at(-1)!.name], ['help', 'pin'], line)
  }
})

test('the single file refuses programs that it does not contain, and says which package has them', () => {
  const single = inSingleFile(X0X)
  const help = helpText([single])
  for (const program of X0X.programs ?? []) {
    for (const line of [program, `${program} --help`, `${program} --port 1`, `help ${program}`])
      assert.throws(
        () => parse(line, single),
        { message: `x0x: "${program}" is not in this single file. It comes with the npm or Debian package` },
        line,
      )
    assert.doesNotMatch(help, new RegExp(`x0x ${program} `))
    assert.match(helpText([X0X]), new RegExp(`x0x ${program} `))
  }
  assert.equal(parse('exec bob -- ui', single).kind, 'line')
})

test('an option before the command belongs to x0x, and after it to the command if that has the same option', () => {
  const names = (line: string): (string | null)[] => [lineOf(line).value('name'), lineOf(line).ownValue('name')]
  assert.deepEqual(names('--name lab enrol create --name web[1-2]'), ['lab', 'web[1-2]'])
  assert.deepEqual(names('enrol create --name web7'), [null, 'web7'])
  assert.deepEqual(names('enrol list --name lab'), ['lab', null])
})
