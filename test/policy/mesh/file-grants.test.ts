import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { describeNoGrant, type FileGrant, findGrant, ruleOf } from '../../../src/policy/mesh/file-grants.ts'
import { fileCommandArgv, parseFileCommand, type FileCommand } from '../../../src/protocol/file-command.ts'
import { aclOf, aclText, commandText, entryText, filesText, MALLORY, readText } from '../../support/acl-text.ts'

/** A file whose only entry has these tables. */
const textOf = (...tables: string[]): string => aclText([entryText([]) + tables.join('')])
const table = (lines: string): string => `[[exec.allow.files]]\n${lines}\n`
const grantsOf = (...tables: string[]): readonly FileGrant[] => aclOf(textOf(...tables)).allow[0]?.files ?? []

const read = (path: string): FileCommand => ({ op: 'read', path, offset: 0, length: 1, version: null })
const write = (path: string): FileCommand => ({ op: 'write', path, upload: '0'.repeat(32), offset: 0, parents: true, finish: null })
const mkdir = (path: string): FileCommand => ({ op: 'mkdir', path, mode: null })

test('a files table has the documented defaults', () => {
  assert.deepEqual(grantsOf(filesText('/srv/app')), [
    {
      root: '/srv/app',
      read: true,
      write: false,
      create_dirs: false,
      max_file_bytes: 1_073_741_824,
      max_total_bytes: null,
      mode: 0o644,
      owner: null,
      ask: false,
      line: 9,
    },
  ])
  assert.deepEqual(aclOf(aclText([entryText([['true']])])).allow[0]?.files, [])
})

test('a files table is read with its keys', () => {
  const keys = {
    write: true,
    create_dirs: true,
    max_file_bytes: 1,
    max_total_bytes: 2,
    mode: '0600',
    owner: 'www-data',
    ask: true,
  }
  const [grant] = grantsOf(filesText('/', { read: false, ...keys }))
  assert.deepEqual(grant, { root: '/', read: false, ...keys, mode: 0o600, line: 9 })
  assert.equal(grantsOf(filesText('/a', { write: true, mode: '755' }))[0]?.mode, 0o755)
})

test('files tables are frozen', () => {
  const files = grantsOf(filesText('/srv'))
  assert.throws(() => (files as unknown[]).push({}), TypeError)
  assert.throws(() => Object.assign(files[0] ?? {}, { root: '/' }), TypeError)
})

for (const [what, lines, problem] of [
  ['an unknown key', 'root = "/a"\nread = true\nasks = true', /:12: exec\.allow\[0\]\.files\[0\]\.asks: unknown key/],
  ['an ask of another type', 'root = "/a"\nread = true\nask = "always"', /\.ask: must be true or false/],
  ['no root', 'read = true', /:9: exec\.allow\[0\]\.files\[0\]\.root: is required/],
  ['a root of another type', 'root = ["/a"]\nread = true', /files\[0\]\.root: must be/],
  ['a relative root', 'root = "srv"\nread = true', /files\[0\]\.root: must be an absolute path .* not "srv"/],
  ['a root with ..', 'root = "/srv/../etc"\nread = true', /must be an absolute path/],
  ['a root with a slash at its end', 'root = "/srv/"\nread = true', /must be an absolute path/],
  ['a root with two slashes', 'root = "//srv"\nread = true', /must be an absolute path/],
  ['a root with NUL', 'root = "/srv\\u0000"\nread = true', /contains a control or invisible character/],
  ['an empty root', 'root = ""\nread = true', /root: /],
  ['no rights', 'root = "/a"', /:9: exec\.allow\[0\]\.files\[0\]: allows nothing: set read = true or write = true/],
  ['only false rights', 'root = "/a"\nread = false\nwrite = false', /allows nothing/],
  ['a right of another type', 'root = "/a"\nread = true\nwrite = "yes"', /\.write: must be true or false/],
  ['create_dirs without write', 'root = "/a"\nread = true\ncreate_dirs = true', /\.create_dirs: needs write = true/],
  ['max_file_bytes without write', 'root = "/a"\nread = true\nmax_file_bytes = 5', /\.max_file_bytes: needs write = true/],
  ['max_total_bytes without write', 'root = "/a"\nread = true\nmax_total_bytes = 5', /\.max_total_bytes: needs write = true/],
  ['mode without write', 'root = "/a"\nread = true\nmode = "0600"', /\.mode: needs write = true/],
  ['owner without write', 'root = "/a"\nread = true\nowner = "app"', /\.owner: needs write = true/],
  ['a size limit of 0', 'root = "/a"\nwrite = true\nmax_file_bytes = 0', /\.max_file_bytes: must be .*1/],
  ['a float as size limit', 'root = "/a"\nwrite = true\nmax_total_bytes = 5.0', /\.max_total_bytes: /],
  ['a mode that is a number', 'root = "/a"\nwrite = true\nmode = 644', /\.mode: must be octal digits as a string, such as "0644", not 644/],
  ['a mode that is not octal', 'root = "/a"\nwrite = true\nmode = "0648"', /\.mode: must be octal digits/],
  ['a symbolic mode', 'root = "/a"\nwrite = true\nmode = "rw-r--r--"', /\.mode: must be octal digits/],
  ['a setuid mode', 'root = "/a"\nwrite = true\nmode = "4755"', /\.mode: is "4755"; setuid, setgid and sticky bits are not allowed/],
  ['a setgid mode', 'root = "/a"\nwrite = true\nmode = "2755"', /setuid, setgid and sticky/],
  ['a sticky mode', 'root = "/a"\nwrite = true\nmode = "1755"', /setuid, setgid and sticky/],
  ['an owner that is not a name', 'root = "/a"\nwrite = true\nowner = "a b"', /\.owner: must be the name of a user/],
  ['an owner that is a number', 'root = "/a"\nwrite = true\nowner = 1000', /\.owner: must be the name of a user/],
] as const)
  test(`a files table with ${what} is refused`, () => {
    const { problems } = readText(textOf(table(lines)))
    assert.equal(problems.length, 1, problems.join('\n') || 'no problem')
    assert.match(problems[0] ?? '', problem)
  })

test('an entry needs a command, an ask pattern or a files table', () => {
  assert.match(readText(aclText([entryText([]), 'files = []\n'])).problems.join('\n'), /has no command: .* or files table$/)
  assert.match(readText(aclText([entryText([]), 'files = 5\n'])).problems.join('\n'), /^acl\.toml:9: exec\.allow\[0\]\.files: must be/)
  assert.deepEqual(readText(textOf(filesText('/a'))).problems, [])
})

test('a rule cannot name a file command', () => {
  for (const name of ['@read', '@', '@x']) {
    const expected = new RegExp(`${name}" is a file command; allow it with \\[\\[exec\\.allow\\.files\\]\\]`)
    const asked = `ask = "on-miss"\n[[exec.allow.ask_patterns]]\nargv = ["${name}", "<ANY...>"]\n`
    for (const text of [commandText([name, '/a']), asked]) {
      const { problems } = readText(aclText([entryText([]) + text]))
      assert.equal(problems.length, 1, problems.join('\n'))
      assert.match(problems[0] ?? '', expected)
    }
  }
})

test('ask = "always" of an entry also applies to its files, and a table cannot change it', () => {
  const asked = (keys: string, table = filesText('/a')): boolean | undefined =>
    aclOf(aclText([entryText([]) + keys + table])).allow[0]?.files[0]?.ask
  assert.equal(asked('ask = "always"\n'), true)
  assert.equal(asked('ask = "always"\n', filesText('/a', { ask: true })), true)
  assert.equal(asked(`approvers = [{ agent_id = "${MALLORY}" }]\n`), false)
  const { problems } = readText(aclText([`${entryText([])}ask = "always"\n${filesText('/a', { ask: false })}`]))
  assert.equal(problems.length, 1, problems.join('\n'))
  assert.match(problems[0] ?? '', /files\[0\]\.ask: is false, and the entry says ask = "always"/)
})

test('a root contains itself and everything below it, but not a path with the same prefix as text', () => {
  const { allow } = aclOf(textOf(filesText('/srv/app')))
  for (const path of ['/srv/app', '/srv/app/a', '/srv/app/a/b', '/srv/app/..x']) assert.ok(findGrant(allow, read(path)), path)
  for (const path of ['/srv/application', '/srv/app2/a', '/srv', '/', '/srv/ap', '/x/srv/app'])
    assert.equal(findGrant(allow, read(path)), null)
  const all = aclOf(textOf(filesText('/'))).allow
  for (const path of ['/', '/a', '/srv/app']) assert.ok(findGrant(all, read(path)), path)
})

test('the first table in file order that has the right applies', () => {
  const { allow } = aclOf(
    aclText([
      entryText([]) + filesText('/srv/app') + filesText('/srv', { read: false, write: true }),
      entryText([]) + filesText('/srv/app/in', { write: true, create_dirs: true }),
    ]),
  )
  const rootOf = (command: FileCommand): string | undefined => findGrant(allow, command)?.grant.root
  assert.equal(rootOf(read('/srv/app/in/x')), '/srv/app')
  assert.equal(rootOf(write('/srv/app/in/x')), '/srv')
  assert.equal(rootOf(mkdir('/srv/app/in/x')), '/srv/app/in')
  assert.equal(rootOf(mkdir('/srv/app/x')), undefined)
  assert.equal(rootOf(read('/srv/x')), undefined)
  assert.equal(findGrant(allow, mkdir('/srv/app/in/x'))?.entry, allow[1])
})

test('reading and writing are separate rights, and each operation needs one of them', () => {
  const readers = aclOf(textOf(filesText('/a'))).allow
  const writers = aclOf(textOf(filesText('/a', { read: false, write: true }))).allow
  const reading: FileCommand[] = [
    read('/a/x'),
    { op: 'stat', path: '/a/x' },
    { op: 'list', path: '/a', recursive: true },
    { op: 'hash', path: '/a/x', version: null },
  ]
  const writing: FileCommand[] = [write('/a/x'), { op: 'upload', path: '/a/x', upload: '0'.repeat(32) }]
  for (const command of reading)
    assert.deepEqual([findGrant(readers, command) !== null, findGrant(writers, command)], [true, null], command.op)
  for (const command of writing)
    assert.deepEqual([findGrant(readers, command), findGrant(writers, command) !== null], [null, true], command.op)
  for (const allow of [readers, writers]) assert.equal(findGrant(allow, mkdir('/a/x')), null)
})

test('a denial names the nearest table and the missing key', () => {
  const why = (command: FileCommand, ...tables: string[]): string =>
    describeNoGrant(tables.length === 0 ? [] : aclOf(textOf(...tables)).allow, command)
  assert.equal(why(read('/a')), 'no entry of this pair has a [[exec.allow.files]] table')
  assert.equal(
    why(read('/srv/application'), filesText('/srv/app'), filesText('/b')),
    '"/srv/application" is below none of the roots "/srv/app", "/b"',
  )
  assert.equal(why(write('/a/x'), filesText('/a')), 'line 9 (root "/a") does not say write = true')
  assert.equal(why(read('/a/x'), filesText('/a', { read: false, write: true })), 'line 9 (root "/a") does not say read = true')
  assert.equal(why(mkdir('/a/x'), filesText('/a'), filesText('/a', { write: true })), 'line 12 (root "/a") does not say create_dirs = true')
})

test('the rule of a files table is not a valid request, not even for the root /', () => {
  const [all, app] = grantsOf(filesText('/'), filesText('/srv/app'))
  assert.deepEqual(
    [all && ruleOf(all, 'read'), app && ruleOf(app, 'write')],
    [
      ['@read', '/'],
      ['@write', '/srv/app/'],
    ],
  )
  assert.equal(parseFileCommand(app ? ruleOf(app, 'read') : []), null)
})

const value: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom('true', 'false', '1', '-1', '0', '1.0', 'nan', '"0644"', '"4755"', '"/srv"', '"/"', '""', '"root"', '[]', '{}', '[[1]]'),
  fc.constantFrom('1979-05-27', '9223372036854775807', '{ root = "/" }', '[{ root = "/", read = true }]'),
  fc.string({ maxLength: 8 }).map((text) => JSON.stringify(text)),
)
const key = fc.constantFrom(
  'root',
  'read',
  'write',
  'create_dirs',
  'max_file_bytes',
  'max_total_bytes',
  'mode',
  'owner',
  'ask',
  '__proto__',
)

test('property: any table is read without an exception, and each table that remains is valid', () => {
  let valid = 0
  fc.assert(
    fc.property(fc.uniqueArray(fc.tuple(key, value), { selector: ([name]) => name, maxLength: 5 }), fc.boolean(), (given, isWhole) => {
      const pairs = Object.entries({ ...(isWhole && { root: '"/srv"', read: 'true' }), ...Object.fromEntries(given) })
      const { acl, problems } = readText(textOf(table(pairs.map(([name, text]) => `${name} = ${text}`).join('\n'))))
      for (const { root, read: reads, write: writes, mode, max_file_bytes } of acl?.allow[0]?.files ?? []) {
        assert.ok(root.startsWith('/') && (root === '/' || !root.endsWith('/')))
        assert.equal(mode & ~0o777, 0)
        assert.ok(max_file_bytes >= 1)
        if (problems.length > 0) continue
        valid += 1
        assert.ok(reads || writes)
        const said = Object.fromEntries(pairs)
        assert.deepEqual([said['read'] === 'true', said['write'] === 'true'], [reads, writes])
      }
      if (acl?.allow[0]?.files.length === 0) assert.notEqual(problems.length, 0)
    }),
    { numRuns: 2_000 },
  )
  assert.ok(valid > 0)
  fc.assert(
    fc.property(value, (text) => {
      const { acl, problems } = readText(
        aclText([entryText([['true']]).replace('[[exec.allow.commands]]', () => `files = ${text}\n[[exec.allow.commands]]`)]),
      )
      if (problems.length === 0) for (const { root } of acl?.allow[0]?.files ?? []) assert.equal(root, '/')
    }),
  )
})

test('property: a path is allowed exactly if its names begin with those of a root', () => {
  const name = fc.constantFrom('a', 'ab', 'b', '..a')
  const path = fc.array(name, { maxLength: 3 }).map((names) => `/${names.join('/')}`)
  fc.assert(
    fc.property(path, path, (root, one) => {
      const names = (text: string): string[] => text.split('/').filter((part) => part !== '')
      const isBelow = names(root).every((part, at) => names(one)[at] === part)
      const command = parseFileCommand(fileCommandArgv(read(one)))
      assert.ok(command)
      assert.equal(findGrant(aclOf(textOf(filesText(root))).allow, command) !== null, isBelow)
    }),
  )
})
