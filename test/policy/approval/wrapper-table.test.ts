import assert from 'node:assert/strict'
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import fc from 'fast-check'

import { TomlReader } from '../../../src/base/toml-reader.ts'
import { parseToml } from '../../../src/base/toml-file.ts'
import { alwaysAskReason, readAlwaysAsk } from '../../../src/policy/approval/always-ask.ts'
import { meaningsOf } from '../../../src/policy/approval/meanings.ts'
import { WRAPPER_ROWS } from '../../../src/policy/approval/wrapper-table.ts'
import { SCRUBBED_PATH } from '../../../src/policy/environment.ts'
import { ESCAPES, startsOthers } from '../../../src/policy/escapes.ts'

/** By words alone, so that no program need be installed. */
const meant = (argv: readonly string[]) => meaningsOf(argv, [], { cwd: null, path: null })
const toml = new TomlReader(
  parseToml('[[r]]\nargv = ["pub", "push", "<ANY...>"]\nreason = "x"\n', 'r.toml', 'bad_config', { bigints: true }),
  'bad_config',
)
const rules = readAlwaysAsk(toml, ['r'], toml.document.value['r'])
const asks = (argv: readonly string[]): boolean => alwaysAskReason(rules, meant(argv), SCRUBBED_PATH) !== null

const words = (text: string): string[] => (text === '' ? [] : text.split(' '))

/** Of each row by its first name: words that do something else than the command, and words in which all is known. `{}`: the command of a rule. */
const WITNESSES: Readonly<Record<string, { readonly asks: readonly string[]; readonly plain?: string }>> = {
  timeout: { asks: ['-k 1 5 {}', '--signal=KILL 5 {}', '-- 5 {}'], plain: '5 true' },
  install: { asks: ['-s --strip-program=x a b'], plain: '-m 644 a b' },
  nice: { asks: ['-n 5 {}', '-5 {}'], plain: '-n 5 true' },
  nohup: { asks: ['{}', '-- {}'], plain: 'true' },
  setsid: { asks: ['-w {}'], plain: 'true' },
  stdbuf: { asks: ['-oL -e 0 {}'], plain: '-oL true' },
  ionice: { asks: ['-c2 -n 7 {}'], plain: '-t true' },
  time: { asks: ['-f x {}'], plain: '-p true' },
  chrt: { asks: ['-f 5 {}', '-i {}', '-p 1 {}'], plain: '-f 5 true' },
  taskset: { asks: ['-c 0-3 {}', '0x3 {}', '-p {}'], plain: '-c 0 true' },
  prlimit: { asks: ['--nofile=5 {}', '--pid 1 {}'], plain: '--nofile=5 true' },
  flock: { asks: ['-n /x {}', '/x -c {}', '-w 5 /x {}', '/x --unknown {}'], plain: '-n /x true' },
  script: { asks: ['', '-q /dev/null', '-c {}', '-q -c true -c {}'] },
  watch: { asks: ['-n 1 {}', '-x {}', '-n1 echo;{}'], plain: '-n 1 true' },
  strace: { asks: ['-f {}', '-o |sh true'], plain: '-f true' },
  valgrind: { asks: ['-q {}'], plain: '--leak-check=full true' },
  xargs: { asks: ['-n 1 {}', 'pub', '-I x x push'], plain: 'true' },
  git: {
    asks: [
      '-c alias.x=!sh x',
      '-c core.pager=x log',
      '-c core.sshCommand=x fetch',
      '--exec-path=/tmp status',
      '-C /tmp status',
      '--git-dir=/tmp status',
      '--config-env=a=b status',
      'x',
      'rebase -x sh',
      'bisect run sh',
      'submodule foreach sh',
      'grep -O x',
      'fetch --upload-pack=sh .',
      'fetch ext::sh',
      'push --e=sh .',
      'clone -u sh .',
      'clone host:x',
      'clone -q ssh://host/x',
      'ls-remote me@host:x/y',
      'fetch git+ssh://host/x',
      'config alias.x !sh',
      'remote add -f x me@host:y',
      'difftool -x sh',
    ],
    plain: '--no-pager status -s',
  },
  tar: {
    asks: [
      '-xf a --checkpoint=1 --checkpoint-action=exec=sh',
      '-xf a --to-command=sh',
      '-xf a -I sh',
      'xIf sh a',
      '-xf a --use-compress-program=sh',
      '-xf a --rsh-command=sh',
      '-xf host:a',
      '-xFf sh a',
    ],
    plain: '-xzf a.tar.gz',
  },
  cpio: { asks: ['-i --rsh-command=sh', '-iF host:x', '-i host:x'], plain: '-idm' },
  zip: { asks: ['-T -TT sh a b', 'a b --unzip-command=sh'], plain: '-r a b' },
  rsync: { asks: ['-e sh a b', '--rsh=sh a b', 'a host:b', '--rsync-path=sh a b'], plain: '-av a b' },
  sed: {
    asks: ['s/a/b/e', '1e', 's/a/b/w/x', 'w/x', '-f x', '--file=x', '-n -e p -e 1e', 'p --file=x', '-s1e x', 'p;1e'],
    plain: '-n -e 1,5p -e s/a/b/g;p x',
  },
  awk: { asks: ['BEGIN{system("sh")}', '{print|"sh"}', '"sh"|getline', '-f x', '@load', '-v a=system x'], plain: '-F: {print$1} x' },
  make: { asks: ['-f x', '--eval=x', '-C /x', 'SHELL=/x', '--file=x', '-Ix'], plain: '-j4 all' },
  npm: { asks: ['run x', 'exec x', 'x', 'install', '--script-shell=x ls'], plain: 'ls' },
  yarn: { asks: ['dlx x', 'run x', 'x'], plain: 'why x' },
  openssl: { asks: ['engine x', 'req -engine x', 'dgst -engine x f', 'rand --provider x'], plain: 'dgst -sha256 x' },
  sort: { asks: ['--compress-program=sh x', '--comp=sh x', '--files0-from=x'], plain: '-rnk 2 x' },
  split: { asks: ['--filter=sh x', '--fil=sh x'], plain: '-l 5 x' },
  ip: { asks: ['netns exec x sh', '-b x', 'vrf exec x sh', 'netn exec x sh'], plain: '-j addr show' },
  cc: { asks: ['-wrapper sh,-c x.c', '@x', '-fplugin=x x.c', '-B/x x.c', '-specs=x x.c'], plain: '-O2 -Wall -o x x.c' },
  wget: { asks: ['--use-askpass=sh x', '-e use_askpass=sh x', '--config=x y'], plain: '-q -O x https://y' },
  rg: { asks: ['--pre sh x', '--pre=sh x', '--hostname-bin sh x'], plain: '-n --pretty x .' },
  fd: { asks: ['-x {}', '-HX {}', '--exec {}', '--exec-batch={}'], plain: '-H --type f x' },
  diff3: { asks: ['--diff-program=sh a b c', '--diff=sh a b c', '-o x a b'], plain: '-m a b c' },
  ar: { asks: ['--plugin=x.so a', '--plug x.so a', '@x'], plain: '-rcs x.a y.o' },
  iptables: { asks: ['-M sh -L', '--modprobe=sh -L', '-nM sh'], plain: '-n -L --line-numbers' },
  tc: { asks: ['exec bpf import x run sh', '-b x'], plain: '-s qdisc show' },
  systemctl: {
    asks: ['-H host status', 'status --host=h', 'edit x', 'link /x', 'enable /tmp/x.service', 'start x --root=/x'],
    plain: '--no-pager status x',
  },
  nmap: { asks: ['--script=x y', '--interactive'], plain: '-sT -p80 y' },
  tcpdump: { asks: ['-G 1 -w x -z sh', '-nz sh'], plain: '-nc 5 -i x' },
  chroot: { asks: ['', '/ {}'] },
}

test('each row of the table has witnesses: what starts something else, or is not understood, asks; what is known does not', () => {
  assert.deepEqual(WRAPPER_ROWS.map(({ names }) => names[0]).sort(), Object.keys(WITNESSES).sort())
  for (const { names } of WRAPPER_ROWS) {
    const { asks: asked, plain } = WITNESSES[names[0]!]!
    for (const name of names) {
      for (const text of asked) {
        const argv = [name, ...words(text.replaceAll('{}', '\0')).flatMap((word) => commandIn(word, text))]
        assert.ok(asks(argv), JSON.stringify(argv))
      }
      for (const argv of [
        [name, '--x0x-unknown', 'pub', 'push'],
        [name, '-\u00e9', 'pub', 'push'],
      ])
        assert.ok(asks(argv), argv.join(' '))
      if (plain !== undefined) assert.equal(meant([name, ...words(plain)]).opaque, null, `${name} ${plain}`)
    }
  }
})

/** The command as words of its own; behind an option of a text, or beside other text, as one. */
const commandIn = (word: string, text: string): string[] =>
  word !== '\0' ? [word.replace('\0', 'pub push')] : / (-c|-c true -c) \{\}|^-c \{\}/.test(` ${text}`) ? ['pub push'] : ['pub', 'push']

test('no program that is known to start others by its words is missing from the table', () => {
  const others = ['env']
  const known = new Set([...others, ...WRAPPER_ROWS.flatMap(({ names }) => names)])
  const starting = ESCAPES.flatMap(({ programs }) => programs).filter(startsOthers)
  assert.ok(starting.length > 20)
  assert.deepEqual(
    starting.filter((name) => !known.has(name)),
    [],
  )
})

test('a name stands in one row', () => {
  const names = WRAPPER_ROWS.flatMap((row) => row.names)
  assert.deepEqual(
    names.filter((name, at) => names.indexOf(name) !== at),
    [],
  )
})

test('a command of git by its own name is that command, and one that is not known may be anything', () => {
  for (const argv of [
    ['git-fetch', 'status', '--upload-pack=sh'],
    ['/usr/lib/git-core/git-ls-remote', 'status', '--upload-pack=sh'],
    ['git-annex', 'sync'],
    ['git-remote-ext', 'x', 'sh'],
  ])
    assert.ok(asks(argv), argv.join(' '))
  assert.ok(!asks(['git-status', '-s']))
})

test('what a shell expands once more behind its quotes, and words that only one shell has, are not told', () => {
  for (const [shell, text] of [
    ['bash', "test -v 'a[$(pub push)]'"],
    ['bash', "'[' -v 'a[$(pub push)]' ]"],
    ['bash', "printf -v 'a[$(pub push)]' x"],
    ['bash', 'jobs -x pub push'],
    ['bash', 'compgen -C pub x'],
    ['zsh', 'noglob pub push'],
    ['zsh', 'nice =pub push'],
    ['fish', 'not pub push'],
  ] as const)
    assert.ok(asks([shell, '-c', text]), `${shell} -c ${text}`)
})

test('the word by which one interpreter says who it is is nothing to another, which runs its stdin', () => {
  for (const argv of [
    ['zsh', '-V'],
    ['tclsh', '--version'],
    ['expect', '--help'],
    ['wish', '-V'],
  ])
    assert.ok(asks(argv), argv.join(' '))
  for (const argv of [
    ['zsh', '--version'],
    ['python3', '--version'],
  ])
    assert.ok(!asks(argv), argv.join(' '))
})

test('find that writes a file which its words name is not told', () => {
  for (const option of ['-fprint', '-fprint0', '-fprintf', '-fls', '-files0-from']) assert.ok(asks(['find', '.', option, '/x']), option)
  assert.ok(!asks(['find', '.', '-name', '-x']))
})

test('of several files that one program runs none is bound alone', () => {
  for (const argv of [
    ['m4', 'one.m4', 'two.m4'],
    ['dc', 'one', 'two'],
    ['/opt/homebrew/bin/gtimeout', '5', 'pub', 'push'],
    ['genv', 'pub', 'push'],
  ])
    assert.ok(asks(argv), argv.join(' '))
})

test('upper and lower case are the same name, as they are the same file where file systems do not tell them apart', () => {
  for (const argv of [
    ['/usr/bin/PUB', 'push'],
    ['ENV', 'pub', 'push'],
    ['/usr/bin/BusyBox', 'nice', 'Pub', 'push'],
    ['Pub-push', 'x'],
    ['SUDO', 'x'],
  ])
    assert.ok(asks(argv), argv.join(' '))
  assert.ok(!asks(['PUB', 'PUSH']))
})

test('what find starts ends where find says, and is no option that was taken for it', () => {
  for (const argv of [
    ['find', '.', '-name', '-exec', '-exec', 'pub', 'push', ';'],
    ['find', '5', '-ok', 'nice', '{}', '+', ';', '-exec', 'pub', 'push', ';'],
    ['find', '.', '-okdir', 'timeout', '{}', '+', 'pub', 'push', ';'],
  ])
    assert.ok(asks(argv), argv.join(' '))
})

test('whatever chain of rows stands before it, a command of a rule asks', () => {
  const chains = WRAPPER_ROWS.filter(({ behind }) => behind === 'command' || behind === 'joined').flatMap(({ names }) =>
    WITNESSES[names[0]!]!.asks.filter((text) => text.endsWith(' {}') && !text.includes('-c {}')).map((text) => [
      names[0]!,
      ...words(text.slice(0, -3)),
    ]),
  )
  assert.ok(chains.length > 15)
  const wrapper = fc.constantFrom(...chains, ['env', 'A=b'], ['busybox'], ['find', '.', '-exec'], ['toybox', 'nice'])
  fc.assert(
    fc.property(
      fc.array(wrapper, { maxLength: 5 }),
      fc.array(fc.constantFrom('-a', 'x', ';', '{}', ''), { maxLength: 4 }),
      (before, more) => {
        assert.ok(asks([...before.flat(), 'pub', 'push', ...more]))
      },
    ),
    { seed: 20_260_504, numRuns: 500 },
  )
})

test('what reads as an option behind another is never taken for an operand, however it is put', () => {
  for (const argv of [
    'tar -xf -- --to-command=x',
    'tar -cf -- --checkpoint=1 --checkpoint-action=exec=x a',
    'git init --t=/x',
    'sh -c -x pub',
    'bash -c -- pub',
    'install -s --strip-prog=x a b',
    '/lib/x86_64-linux-gnu/ld-2.31.so /bin/pub',
    '/lib64/ld64.so.2 /bin/pub',
    '/usr/lib/x86_64-linux-musl/libc.so /bin/pub',
    '/lib/libc.musl-x86_64.so.1 /bin/pub',
  ])
    assert.ok(asks(argv.split(' ')), argv)
  assert.ok(asks(['watch', '-x', './a b', 'push']), 'a name with a space is one program')
})

test('what stands in /proc is another file for each process that looks, by itself and behind a link', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-proc-'))
  t.after(() => rm(dir, { recursive: true }))
  await symlink('/proc/self/exe', join(dir, 'me'))
  await symlink('/proc/self/cwd', join(dir, 'here'))
  await writeFile(join(dir, '5'), '')
  const at = (...argv: string[]) => meaningsOf(argv, [], { cwd: dir, path: SCRUBBED_PATH })
  for (const argv of [
    ['/proc/self/exe', '5'],
    ['timeout', '5', '/proc/self/exe', '5', 'pub'],
    ['timeout', '5', join(dir, 'me'), '5', 'pub'],
    ['sh', join(dir, 'here', 'x.sh')],
    ['sh', '/dev/fd/3'],
  ])
    assert.match(at(...argv).opaque ?? '', /another file for each process/, argv.join(' '))
  assert.equal(at('sh', join(dir, '5')).opaque, null)
})

test('one file that is many programs is itself under a name that begins with its own', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-many-'))
  t.after(() => rm(dir, { recursive: true }))
  for (const name of ['busybox', 'coreutils']) await writeFile(join(dir, name), '', { mode: 0o755 })
  for (const [name, target] of [
    ['busyboxy', 'busybox'],
    ['ls', 'busybox'],
    ['any', 'coreutils'],
  ] as const)
    await symlink(target, join(dir, name))
  const at = (...argv: string[]) => alwaysAskReason(rules, meaningsOf(argv, [], { cwd: dir, path: dir }), dir)
  assert.equal(at(join(dir, 'busyboxy'), 'pub', 'push'), 'x')
  assert.equal(at(join(dir, 'any'), '--coreutils-prog=pub', 'push'), 'x')
  assert.equal(at(join(dir, 'ls'), 'pub', 'push'), null)
})

test('a command as long as may be, through wrappers, patterns and links, costs no more than is followed', () => {
  const many = (count: number, ...words: string[]): string[] => Array.from({ length: count }, () => words).flat()
  const list = Array.from({ length: 500 }, () => rules).flat()
  for (const argv of [
    ['env', ...many(60_000, 'A=')],
    [...many(15, 'timeout', '1'), 'pub', ...many(60_000, 'x')],
    [...many(15, 'env'), 'pub', ...many(250, '-C', 'x')],
    ['pub', ...many(2_000, '-C', 'x')],
    ['tar', `${'F'.repeat(190_000)}1`],
    ['find', ...many(40_000, '-exec', 'a', ';')],
    [`/${'1'.repeat(100_000)}\n`],
  ]) {
    const before = process.cpuUsage()
    alwaysAskReason(list, meaningsOf(argv, [], { cwd: '/', path: SCRUBBED_PATH }), SCRUBBED_PATH)
    // Before there was a bound, each took tens of seconds.
    const { user, system } = process.cpuUsage(before)
    assert.ok(user + system < 5_000_000, `${argv.slice(0, 3).join(' ').slice(0, 60)}: ${user + system} µs`)
  }
  assert.match(meant(['env', ...many(60_000, 'A=')]).opaque ?? '', /more than the 4096 words/)
  assert.equal(meant(['echo', ...many(4_000, 'x')]).opaque, null)
})
