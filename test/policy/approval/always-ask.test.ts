import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { chmod, link, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import { parseToml } from '../../../src/base/toml-file.ts'
import { TomlReader } from '../../../src/base/toml-reader.ts'
import { alwaysAskReason, readAlwaysAsk } from '../../../src/policy/approval/always-ask.ts'
import type { AlwaysAskRule } from '../../../src/policy/approval/ask-rules.ts'
import { meaningsOf } from '../../../src/policy/approval/meanings.ts'
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

/** A directory with a program `pub`, and where it is looked for. */
const withPub = async (
  t: TestContext,
): Promise<{ dir: string; path: string; asks: (argv: readonly string[], variables?: readonly string[]) => boolean }> => {
  const dir = await tempDir(t)
  await writeFile(join(dir, 'pub'), '#!/bin/sh\n')
  await chmod(join(dir, 'pub'), 0o755)
  const path = `${dir}:${SCRUBBED_PATH}`
  const rules = rulesOf(['pub', 'push', '<ANY...>'])
  const asks = (argv: readonly string[], variables: readonly string[] = []): boolean =>
    alwaysAskReason(rules, meaningsOf(argv, variables, { cwd: dir, path }), path) !== null
  return { dir, path, asks }
}

test('a rule is of its program and words, and of nothing else', async (t) => {
  const { dir, asks } = await withPub(t)
  for (const argv of [
    ['pub', 'push'],
    ['pub', 'push', 'origin', 'main'],
    [join(dir, 'pub'), 'push'],
    ['pub', '-C', '.', 'push'],
    ['pub', '--quiet', 'push'],
  ])
    assert.ok(asks(argv), argv.join(' '))
  for (const argv of [['pub'], ['pub', 'pull'], ['pub', 'log', 'push'], ['echo', 'pub', 'push'], ['true'], ['find', '.', '-name', 'pub']])
    assert.ok(!asks(argv), argv.join(' '))
})

test('a path written another way, a link and another name of the same file are the same command', async (t) => {
  const { dir, asks } = await withPub(t)
  await mkdir(join(dir, 'other'))
  await symlink(join(dir, 'pub'), join(dir, 'other', 'soft'))
  await link(join(dir, 'pub'), join(dir, 'other', 'hard'))
  for (const program of [
    './pub',
    `${dir}/./pub`,
    `${dir}//pub`,
    `${dir}/other/../pub`,
    'other/soft',
    join(dir, 'other', 'hard'),
    `/proc/self/root${dir}/pub`,
  ])
    if (!program.startsWith('/proc') || existsSync(program)) assert.ok(asks([program, 'push']), program)
})

test('a script behind a link is the one that its interpreter opens, and not the one that its text says', async (t) => {
  const { dir } = await withPub(t)
  await mkdir(join(dir, 'work'))
  await mkdir(join(dir, 'other', 'deep'), { recursive: true })
  await symlink(join(dir, 'other', 'deep'), join(dir, 'work', 'link'))
  for (const place of ['work', 'other']) await writeFile(join(dir, place, 'x.sh'), place, { mode: 0o755 })
  const at = { cwd: join(dir, 'work'), path: SCRUBBED_PATH }
  const script = meaningsOf(['sh', './link/../x.sh'], [], at).scripts.at(-1)
  assert.equal(await readFile(script ?? '', 'utf8'), 'other')
  assert.equal(meaningsOf(['nice', 'link/../x.sh'], [], at).all.at(-1)?.file?.real, join(dir, 'other', 'x.sh'))
  assert.deepEqual(new Set(meaningsOf(['sh', './x.sh'], [], at).scripts), new Set([join(dir, 'work', 'x.sh')]))
})

test('the name that a command of a program has by itself is that command', async (t) => {
  const { dir, asks } = await withPub(t)
  await symlink(join(dir, 'pub'), join(dir, 'pub-push'))
  await symlink(join(dir, 'pub'), join(dir, 'pub-pull'))
  assert.ok(asks(['pub-push', 'origin']))
  assert.ok(asks([join(dir, 'pub-push')]))
  assert.ok(asks(['env', 'pub-push', 'origin']))
  assert.ok(!asks(['pub-pull', 'origin']))
})

test('an interpreter that is told to load more than its script, and variables that say what a program runs, cannot be told', async (t) => {
  const { dir } = await withPub(t)
  await writeFile(join(dir, 'own'), '')
  const opaque = (argv: readonly string[], variables: readonly string[] = []): string | null =>
    meaningsOf(argv, variables, { cwd: dir, path: SCRUBBED_PATH }).opaque
  for (const options of [[], ['-e'], ['-eu'], ['-eo', 'pipefail'], ['--']])
    assert.equal(opaque(['sh', ...options, 'own']), null, options.join(' '))
  for (const argv of [
    ['perl', '-Mstrict;system(qw(pub push))', 'own'],
    ['perl', '-I/tmp', 'own'],
    ['perl', '-d:Other', 'own'],
    ['ruby', '-C/tmp', 'own'],
    ['ruby', '-I/tmp', 'own'],
    ['bash', '-l', 'own'],
    ['bash', '--login', 'own'],
    ['bash', '-i', 'own'],
    ['python3', '-X', 'pycache_prefix=/tmp', 'own'],
    ['python3', '-i', 'own'],
    ['node', '--import=data:,1', 'own'],
    ['node', '--require=other', 'own'],
    ['env', 'PATH=/tmp', '/bin/sh', 'own'],
    ['env', 'HOME=/tmp', '/bin/sh', 'own'],
    ['env', 'GNUMAKEFLAGS=--eval=x', 'true'],
    ['env', 'DBUS_SESSION_BUS_ADDRESS=unixexec:path=x', 'true'],
  ])
    if (existsSync(join('/usr/bin', basename(argv[0]!)))) assert.notEqual(opaque(argv), null, argv.join(' '))
  for (const variable of ['PATH', 'HOME', 'LUA_INIT', 'EDITOR', 'RIPGREP_CONFIG_PATH', 'ANY_OTHER'])
    assert.notEqual(opaque(['sh', 'own'], [variable]), null, variable)
  assert.equal(opaque(['sh', 'own'], ['LANG']), null)
})

test('B8: a wrapper is taken off: env with its options and texts, timeout, nice and their like', async (t) => {
  const { asks } = await withPub(t)
  const wrappers = [
    ['env'],
    ['env', 'A=1', 'B=2'],
    ['env', '-i', '-u', 'HOME', 'A=1'],
    ['env', '--', 'A=1'],
    ['/usr/bin/env', '--unset=HOME'],
    ['timeout', '5'],
    ['timeout', '-k', '1', '--signal=KILL', '5'],
    ['nice'],
    ['nice', '-n', '5'],
    ['nice', '-5'],
    ['nohup'],
    ['setsid', '-w'],
    ['stdbuf', '-oL', '-e', '0'],
    ['ionice', '-c2', '-n', '7'],
    ['env', 'timeout', '5', 'nice', 'setsid', 'env', 'A=1'],
    ['xargs', '-n', '1'],
    ['find', '.', '-exec'],
  ]
  for (const wrapper of wrappers) assert.ok(asks([...wrapper, 'pub', 'push']), wrapper.join(' '))
  for (const argv of [
    ['env', '-S', 'pub push'],
    ['env', '-Spub push x'],
    ['env', '--split-string=A=1 pub', 'push'],
    ['env', '-S', '-i pub', 'push'],
    ['find', '.', '-name', 'x', '-execdir', '/bin/true', ';', '-ok', 'pub', '{}', ';'],
    ['xargs', 'pub'],
    ['sh', '-c', 'cd /tmp && pub push'],
    ['bash', '-c', 'true; \'pub\' "push" x'],
  ])
    assert.ok(asks(argv), argv.join(' '))
  for (const argv of [
    ['env', 'A=1'],
    ['env', '-S', 'pub pull'],
    ['timeout', '5', 'true', 'pub', 'push'],
    ['nice', 'true'],
    ['find', '.', '-exec', 'true', '{}', ';'],
    ['xargs', 'true'],
    ['sh', '-c', 'true; pub pull'],
    ['sh', '--version'],
  ])
    assert.ok(!asks(argv), argv.join(' '))
})

test('B1 B2 B3 B4 B9: where it cannot be told what runs, it asks: texts for shells, options not known, too many wrappers', async (t) => {
  const { dir, asks } = await withPub(t)
  for (const argv of [
    ['sh', '-c', 'echo "$(pub push)"'],
    ['sh', '-c', 'echo `pub push`'],
    ['sh', '-c', 'echo $\\\n(pub push)'],
    ['bash', '-c', 'cat <<X\n$(pub push)\nX'],
    ['sh', '-c', 'p""ub push'.replace('""', '\\')],
    ['sh', '-c', 'eval pub push'],
    ['sh', '-c', '$0 "$@"', 'pub', 'push'],
    ['sh'],
    ['bash', '-i'],
    ['python3', '-c', 'import os'],
    ['python3', '-m', 'x'],
    ['perl', '-e', '1'],
    ['node', '-e', '1'],
    ['node', '--unknown', 'x.js'],
    ['awk', 'BEGIN { system("pub push") }'],
    ['sudo', 'pub', 'push'],
    ['ssh', 'host', 'pub', 'push'],
    ['chroot', '/', 'pub', 'push'],
    ['env', '--unknown-option', 'pub', 'push'],
    ['env', 'LD_PRELOAD=/tmp/x.so', 'true'],
    ['env', '-S', 'p"ub" push'],
    ['xargs', '-I', '{}', '{}', 'push'],
    ['xargs', 'sh'],
    ['xargs', 'env'],
    ['find', '.', '-exec', '{}', ';'],
    ['find', '.', '-exec', 'sh', '-c', '{}', ';'],
    [...Array<string>(40).fill('env'), 'true'],
    ['no-such-program-x0x'],
  ])
    assert.ok(asks(argv), JSON.stringify(argv))
  assert.ok(asks(['true'], ['BASH_ENV']))
  assert.ok(asks(['true'], ['LD_AUDIT', 'LANG']))
  assert.ok(!asks(['true'], ['LANG']))
  await writeFile(join(dir, 'x.sh'), '')
  for (const argv of [
    ['sh', 'x.sh', 'pub', 'push'],
    ['awk', '{ print $1 }'],
    ['sh', '--version'],
  ])
    assert.ok(!asks(argv), argv.join(' '))
})

test('B11: a shell by another name, a link or a wrapper of it is still one', async (t) => {
  const { dir, asks } = await withPub(t)
  await symlink('/bin/sh', join(dir, 'tidy'))
  await symlink('/usr/bin/env', join(dir, 'order'))
  for (const argv of [['tidy', '-c', 'echo $(pub push)'], [join(dir, 'tidy')], ['order', 'pub', 'push'], ['order', 'sh']])
    assert.ok(asks(argv), argv.join(' '))
  assert.ok(!asks(['order', 'true']))
})

test(
  'B10: busybox and toybox are the program that their word names',
  { skip: existsSync('/bin/busybox') ? false : 'busybox is not installed' },
  async (t) => {
    const { asks } = await withPub(t)
    for (const argv of [
      ['busybox', 'sh', '-c', 'echo $(pub push)'],
      ['busybox', 'env', 'pub', 'push'],
      ['busybox', 'sh'],
      ['busybox', 'busybox', 'nice', 'pub', 'push'],
    ])
      assert.ok(asks(argv), argv.join(' '))
    assert.ok(!asks(['busybox', 'true']))
  },
)

test('B10: an applet is known by its name where no busybox is there either', async (t) => {
  const { dir, path } = await withPub(t)
  await symlink('/bin/true', join(dir, 'busybox'))
  const rules = rulesOf(['wipe', '<ANY...>'])
  const asks = (argv: readonly string[]): boolean => alwaysAskReason(rules, meaningsOf(argv, [], { cwd: dir, path }), path) !== null
  for (const argv of [
    ['busybox', 'wipe', '/'],
    ['busybox', 'sh', '-c', 'wipe /'],
    ['busybox', 'nice', 'wipe'],
  ])
    assert.ok(asks(argv), argv.join(' '))
  assert.ok(!asks(['busybox', 'true']))
})

test('of a command for another host its words are judged, and no file of this one', () => {
  const rules = rulesOf(['pub', 'push', '<ANY...>'])
  const asks = (...argv: string[]): boolean =>
    alwaysAskReason(rules, meaningsOf(argv, [], { cwd: null, path: null }), SCRUBBED_PATH) !== null
  for (const argv of [
    ['pub', 'push'],
    ['/opt/pub', 'push'],
    ['env', 'pub', 'push'],
    ['sh', '-c', 'x=$(y)'],
  ])
    assert.ok(asks(...argv), argv.join(' '))
  for (const argv of [
    ['not-installed-here', 'x'],
    ['pub', 'pull'],
  ])
    assert.ok(!asks(...argv), argv.join(' '))
})

test('<shell> gives what cannot be told a reason of its own', () => {
  const { rules } = read(ruleText(['pub', 'push'], 'it publishes') + ruleText(['<shell>'], 'a shell'))
  const reason = (...argv: string[]): string | null =>
    alwaysAskReason(rules, meaningsOf(argv, [], { cwd: '/', path: SCRUBBED_PATH }), SCRUBBED_PATH)
  assert.equal(reason('sh', '-c', 'echo $x'), 'a shell')
  assert.equal(reason('pub', 'push'), 'it publishes')
  assert.equal(reason('true'), null)
  assert.match(
    alwaysAskReason(rules.slice(0, 1), meaningsOf(['sh'], [], { cwd: '/', path: SCRUBBED_PATH }), SCRUBBED_PATH) ?? '',
    /^sh runs .* it publishes$/,
  )
})

test('rules are read strictly, each problem with its line', () => {
  for (const [text, problem] of [
    ['[[always_ask]]\nargv = ["x"]\n', /^rules\.toml:1: always_ask\[0\]\.reason: is required/],
    [ruleText([]), /:2: always_ask\[0\]\.argv: is empty/],
    [ruleText(['./x']), /argv\[0\]: "\.\/x" must be an absolute path or a bare name/],
    [ruleText(['<INT>']), /a template cannot name the program/],
    [ruleText(['<ANY...>']), /stands behind the program/],
    [ruleText(['x', '<ANY...>', 'y']), /argv\[1\]: <ANY\.\.\.> must be the last token/],
    [ruleText(['x', '<ANY>']), /unknown template <ANY>/],
    [ruleText(['x', '<shell>']), /unknown template <shell>/],
    [`${ruleText(['x'])}match = "y"\n`, /match: unknown key; known here: argv, reason/],
    [ruleText(['x'], 'r'.repeat(513)), /reason: has at most 512 bytes/],
    [ruleText(['x'], '\u202e'), /reason: contains a control or invisible character/],
    ['always_ask = "x"\n', /must be written \[\[always_ask\]\]/],
  ] as const) {
    const { problems } = read(text)
    assert.equal(problems.length, 1, `${text}${problems.join('\n')}`)
    assert.match(problems[0] ?? '', problem)
  }
})

test('whatever stands around it: a wrapped command of a rule never goes unasked', () => {
  const rules = rulesOf(['true', 'x', '<ANY...>'])
  const around = { cwd: '/', path: SCRUBBED_PATH }
  const wrapper = fc.constantFrom(
    ['env'],
    ['env', 'A=b'],
    ['env', '-i'],
    ['nice', '-n', '1'],
    ['timeout', '9'],
    ['nohup'],
    ['setsid'],
    ['xargs'],
    ['stdbuf', '-o0'],
  )
  const word = fc.constantFrom('-a', '--b=c', 'x', 'y', ';', '{}', '')
  fc.assert(
    fc.property(
      fc.array(wrapper, { maxLength: 6 }),
      fc.constantFrom('true', '/bin/true', '/usr/bin/../bin/true'),
      fc.array(word, { maxLength: 5 }),
      (wrappers, program, more) => {
        const meanings = meaningsOf([...wrappers.flat(), program, 'x', ...more], [], around)
        assert.ok(alwaysAskReason(rules, meanings, SCRUBBED_PATH) !== null)
      },
    ),
    { seed: 20_260_503, numRuns: 300 },
  )
})
