import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { chmod, copyFile, link, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import { parseToml } from '../../../src/base/toml.ts'
import { TomlReader } from '../../../src/base/toml.ts'
import { alwaysAskOf, readAlwaysAsk } from '../../../src/policy/approval/always-ask.ts'
import type { AlwaysAskRule } from '../../../src/policy/approval/ask-rules.ts'
import { meaningOf } from '../../../src/policy/approval/meanings.ts'
import { SCRUBBED_PATH } from '../../../src/policy/environment.ts'
import { tempDir } from '../../support/temp-dir.ts'

const ruleText = (argv: readonly string[], reason = 'because'): string =>
  `[[always_ask]]\nargv = ${JSON.stringify(argv)}\nreason = ${JSON.stringify(reason)}\n`

const read = (text: string): { rules: AlwaysAskRule[]; problems: string[] } => {
  const toml = new TomlReader(parseToml(text, 'rules.toml', 'bad_config', { bigints: true }), 'bad_config')
  const rules = readAlwaysAsk(toml, ['always_ask'], toml.document.value['always_ask'])
  return { rules, problems: toml.problems }
}

const rulesOf = (...argvs: readonly (readonly string[])[]): AlwaysAskRule[] => {
  const { rules, problems } = read(argvs.map((argv) => ruleText(argv)).join(''))
  assert.deepEqual(problems, [])
  return rules
}

/** A directory with a program `pub`, and how the rules treat a command there: a `rule` names it, it `may` run a listed command, or null. */
const withPub = async (
  t: TestContext,
): Promise<{ dir: string; asks: (argv: readonly string[], variables?: readonly string[]) => 'rule' | 'may' | null }> => {
  const dir = await tempDir(t)
  await writeFile(join(dir, 'pub'), '#!/bin/sh\n')
  await chmod(join(dir, 'pub'), 0o755)
  const path = `${dir}:${SCRUBBED_PATH}`
  const rules = rulesOf(['pub', 'push', '<ANY...>'])
  const asks = (argv: readonly string[], variables: readonly string[] = []): 'rule' | 'may' | null => {
    const found = alwaysAskOf(rules, meaningOf(argv, variables, { cwd: dir, path }), path)
    return found === null ? null : found.isEachTime ? 'rule' : 'may'
  }
  return { dir, asks }
}

test('a rule matches its tokens in order anywhere in argv, except among the arguments of a transparent program', async (t) => {
  const { dir, asks } = await withPub(t)
  for (const argv of [
    ['pub', 'push'],
    ['pub', 'push', 'origin', 'main'],
    [join(dir, 'pub'), 'push'],
    ['pub', '-C', '.', 'push'],
    ['pub', '--quiet', 'log', 'push'],
    ['PUB', 'push'],
  ])
    if (argv[0] !== 'PUB' || existsSync(join(dir, 'PUB'))) assert.equal(asks(argv), 'rule', argv.join(' '))
  for (const argv of [['pub'], ['pub', 'pull'], ['env', 'push', 'pub'], ['find', '.', '-name', 'pub']])
    assert.equal(asks(argv), 'may', argv.join(' '))
  for (const argv of [['echo', 'pub', 'push'], ['true'], ['grep', 'pub push', 'x'], ['ls', '-l']])
    assert.equal(asks(argv), null, argv.join(' '))
})

test('the rules treat another spelling of a path, a symbolic link and a hard link as the same command', async (t) => {
  const { dir, asks } = await withPub(t)
  await mkdir(join(dir, 'other'))
  await symlink(join(dir, 'pub'), join(dir, 'other', 'soft'))
  await link(join(dir, 'pub'), join(dir, 'other', 'hard'))
  for (const program of ['./pub', `${dir}/./pub`, `${dir}//pub`, `${dir}/other/../pub`, 'other/soft', join(dir, 'other', 'hard')]) {
    assert.equal(asks([program, 'push']), 'rule', program)
    assert.equal(asks(['env', program, 'push']), 'rule', `env ${program}`)
  }
  // Such a path can lead to another file in each process, so it may run anything.
  for (const program of [`/proc/self/root${dir}/pub`, '/proc/self/root/bin/ls', '/proc/self/exe'])
    if (existsSync(program)) assert.notEqual(asks([program, 'push']), null, program)
})

test('policy finds the script that the interpreter would open, through links and at any place in argv', async (t) => {
  const { dir } = await withPub(t)
  await mkdir(join(dir, 'work'))
  await mkdir(join(dir, 'other', 'deep'), { recursive: true })
  await symlink(join(dir, 'other', 'deep'), join(dir, 'work', 'link'))
  for (const place of ['work', 'other']) await writeFile(join(dir, place, 'x.sh'), place, { mode: 0o755 })
  const at = { cwd: join(dir, 'work'), path: SCRUBBED_PATH }
  const script = meaningOf(['sh', './link/../x.sh'], [], at).scripts.at(-1)
  assert.equal(await readFile(script ?? '', 'utf8'), 'other')
  assert.equal(meaningOf(['nice', 'link/../x.sh'], [], at).others.at(-1)?.real, join(dir, 'other', 'x.sh'))
  for (const argv of [
    ['sh', './x.sh'],
    ['env', 'A=1', 'sh', '-e', './x.sh'],
    ['some-wrapper', 'exec', '--', '/bin/sh', 'x.sh'],
  ])
    assert.deepEqual(meaningOf(argv, [], { ...at, path: argv[0] === 'some-wrapper' ? null : at.path }).scripts, [join(dir, 'work', 'x.sh')])
  assert.deepEqual(meaningOf(['git', 'log', 'sh', 'no-such-file'], [], at).scripts, [])
})

test('a rule for "pub push" also matches the separate program pub-push', async (t) => {
  const { dir, asks } = await withPub(t)
  await symlink(join(dir, 'pub'), join(dir, 'pub-push'))
  await symlink(join(dir, 'pub'), join(dir, 'pub-pull'))
  for (const argv of [['pub-push', 'origin'], [join(dir, 'pub-push')], ['env', 'pub-push', 'origin']])
    assert.equal(asks(argv), 'rule', argv.join(' '))
  assert.equal(asks(['pub-pull', 'origin']), 'may')
})

test('a rule matches a command behind any wrapper, even an unknown one', async (t) => {
  const { asks } = await withPub(t)
  const wrappers = [
    ['env'],
    ['env', '-i', '-u', 'HOME', 'A=1'],
    ['timeout', '-k', '1', '--signal=KILL', '5'],
    ['nice', '-n', '5'],
    ['sudo', '-u', 'x'],
    ['xargs', '-I', '{}', '{}'],
    ['find', '.', '-exec'],
    ['direnv', 'exec', '.'],
    ['mise', 'x', '--'],
    ['op', 'run', '--'],
    ['nsjail', '--chroot', '/', '--'],
    ['fakeroot-sysv'],
    ['never-heard-of', 'exec', '--', 'env', 'timeout', '9'],
  ]
  for (const wrapper of wrappers) {
    const argv = [...wrapper, 'pub', '-C', '.', 'push']
    const meaning = meaningOf(argv, [], { cwd: '/', path: null })
    assert.equal(alwaysAskOf(rulesOf(['pub', 'push']), meaning, SCRUBBED_PATH)?.isEachTime, true, argv.join(' '))
    if (existsSync(`/usr/bin/${wrapper[0] ?? ''}`)) assert.equal(asks(argv), 'rule', argv.join(' '))
  }
})

test('B1 B2 B3 B4 B8 B9 B11: an opaque command asks, such as shell code, a script, a build tool or a copy', async (t) => {
  const { dir, asks } = await withPub(t)
  await writeFile(join(dir, 'x.sh'), '')
  await writeFile(join(dir, 'shebang'), '#!/bin/sh\npub push\n', { mode: 0o755 })
  for (const name of ['ls', 'copy']) await copyFile('/bin/ls', join(dir, name))
  await symlink('/bin/sh', join(dir, 'tidy'))
  for (const argv of [
    ['sh', '-c', 'pub push'],
    ['sh', '-c', 'echo "$(pub push)"'],
    ['sh'],
    ['sh', '--version'],
    ['sh', 'x.sh'],
    ['perl', '-e', '1'],
    ['awk', 'BEGIN { system("pub push") }'],
    ['git', 'log'],
    ['make'],
    ['./shebang'],
    ['./ls'],
    ['./copy'],
    ['tidy', '-c', 'x'],
    ['tar', 'cf', 'x', '--checkpoint-action=exec=pub push'],
    ['sort', '--compress-program=pub', 'x'],
    ['date', '-s', 'now'],
    [...Array<string>(40).fill('env'), 'true'],
    ['echo', ...Array<string>(5_000).fill('x')],
    ['no-such-program-x0x'],
  ])
    assert.equal(asks(argv), 'may', JSON.stringify(argv.slice(0, 3)))
  for (const variable of ['PATH', 'HOME', 'BASH_ENV', 'LD_PRELOAD', 'LD_AUDIT', 'EDITOR', 'ANY_OTHER'])
    assert.equal(asks(['true'], ['LANG', variable]), 'may', variable)
  assert.equal(asks(['true'], ['LANG', 'LC_ALL', 'TERM']), null)
})

test(
  'B10: a file that contains many programs is transparent under no name',
  { skip: existsSync('/bin/busybox') ? false : 'busybox is not installed' },
  async (t) => {
    const { dir, asks } = await withPub(t)
    await symlink('/bin/busybox', join(dir, 'cat'))
    for (const argv of [
      ['busybox', 'sh'],
      ['busybox', 'true'],
      ['./cat', 'x'],
    ])
      assert.equal(asks(argv), 'may', argv.join(' '))
    assert.equal(asks(['busybox', 'nice', 'pub', 'push']), 'rule')
  },
)

test('policy judges a command for another host only by its words, without the files of this host', () => {
  const rules = rulesOf(['pub', 'push', '<ANY...>'])
  const asks = (...argv: string[]): boolean | null =>
    alwaysAskOf(rules, meaningOf(argv, [], { cwd: null, path: null }), SCRUBBED_PATH)?.isEachTime ?? null
  for (const argv of [
    ['pub', 'push'],
    ['/opt/pub', 'push'],
    ['env', 'pub', 'push'],
  ])
    assert.equal(asks(...argv), true, argv.join(' '))
  for (const argv of [['not-installed-here', 'x'], ['pub', 'pull'], ['/opt/bin/ls'], ['sh', '-c', 'x=$(y)']])
    assert.equal(asks(...argv), false, argv.join(' '))
  for (const argv of [['ls'], ['/usr/bin/df', '-h']]) assert.equal(asks(...argv), null, argv.join(' '))
})

test('<shell> gives opaque commands their own reason', () => {
  const { rules } = read(ruleText(['pub', 'push'], 'it publishes') + ruleText(['<shell>'], 'a shell'))
  const reason = (among: readonly AlwaysAskRule[], ...argv: string[]): string | null =>
    alwaysAskOf(among, meaningOf(argv, [], { cwd: '/', path: SCRUBBED_PATH }), SCRUBBED_PATH)?.reason ?? null
  assert.equal(reason(rules, 'sh', '-c', 'echo $x'), 'a shell')
  assert.equal(reason(rules, 'env', 'pub', 'push'), 'it publishes')
  assert.equal(reason(rules, 'true'), null)
  assert.match(reason(rules.slice(0, 1), 'sh') ?? '', /^sh may start other programs, .* so it may run a command that always asks$/)
})

test('the reader of rules is strict and reports each problem with its line', () => {
  for (const [text, problem] of [
    ['[[always_ask]]\nargv = ["x"]\n', /^rules\.toml:1: always_ask\[0\]\.reason: is required/],
    [ruleText([]), /:2: always_ask\[0\]\.argv: is empty/],
    [ruleText(['./x']), /argv\[0\]: "\.\/x" must be an absolute path or a bare name/],
    [ruleText(['<INT>']), /a template cannot name the program/],
    [ruleText(['<ANY...>']), /must be after the program/],
    [ruleText(['x', '<ANY...>', 'y']), /argv\[1\]: <ANY\.\.\.> must be the last token/],
    [ruleText(['x', '<ANY>']), /unknown template <ANY>/],
    [ruleText(['x', '<shell>']), /unknown template <shell>/],
    [`${ruleText(['x'])}match = "y"\n`, /match: unknown key; known keys: argv, reason/],
    [ruleText(['x'], 'r'.repeat(513)), /reason: has at most 512 bytes/],
    [ruleText(['x'], '\u202e'), /reason: contains a control or invisible character/],
    ['always_ask = "x"\n', /must be written \[\[always_ask\]\]/],
  ] as const) {
    const { problems } = read(text)
    assert.equal(problems.length, 1, `${text}${problems.join('\n')}`)
    assert.match(problems[0] ?? '', problem)
  }
})

test('property: a command that a rule names always asks, with any words around it', () => {
  const rules = rulesOf(['kill', 'x', '<ANY...>'])
  const around = { cwd: '/', path: SCRUBBED_PATH }
  const word = fc.constantFrom('-a', '--b=c', 'x', 'y', ';', '{}', '', 'env', 'exec', '--')
  fc.assert(
    fc.property(
      fc.array(word, { maxLength: 6 }),
      fc.constantFrom('kill', '/bin/kill', '/usr/bin/../bin/kill'),
      fc.array(word, { maxLength: 3 }),
      fc.array(word, { maxLength: 3 }),
      (before, program, between, after) => {
        const meaning = meaningOf(['env', ...before, program, ...between, 'x', ...after], [], around)
        assert.equal(alwaysAskOf(rules, meaning, SCRUBBED_PATH)?.isEachTime, true)
      },
    ),
    { seed: 20_260_503, numRuns: 300 },
  )
})

test('the maximum number of words and rules is compared within seconds', () => {
  const rules = rulesOf(...Array.from({ length: 1_000 }, (_one, at) => ['env', 'env-x', `never-${at}`]))
  const words = Array.from({ length: 4_095 }, (_one, at) => (at % 2 === 0 ? 'env' : 'env-env-x'))
  const began = performance.now()
  const found = alwaysAskOf(rules, meaningOf(['env', ...words], [], { cwd: '/', path: SCRUBBED_PATH }), SCRUBBED_PATH)
  assert.equal(found?.isEachTime, false)
  // Comparing each word with each other word for each rule would take minutes.
  assert.ok(performance.now() - began < 10_000, String(performance.now() - began))
})
