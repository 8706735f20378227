import assert from 'node:assert/strict'
import { mkdir, realpath, symlink } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { sandboxGrant, sandboxPlace, type SandboxPlace } from '../../../src/policy/sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX } from '../../../src/policy/sandbox/sandbox-settings.ts'
import { temporaryDirectory } from '../../support/processes.ts'

const home = async (t: TestContext): Promise<SandboxPlace & { project: string }> => {
  const path = join(await realpath(await temporaryDirectory(t)), 'user')
  for (const name of ['.x0x', '.ssh', 'project']) await mkdir(join(path, name), { recursive: true })
  return { home: path, secrets: [join(path, '.x0x'), join(path, '.ssh')], project: join(path, 'project') }
}

const reasonOf = (cwd: string, place: SandboxPlace, settings = DEFAULT_SANDBOX): string => {
  const verdict = sandboxGrant(settings, cwd, place)
  if (verdict.kind === 'grant') return 'granted'
  assert.equal(verdict.code, 'forbidden_path')
  return verdict.message
}

test('a project of the home is granted, with nothing else of the home', async (t) => {
  const place = await home(t)
  const verdict = sandboxGrant(DEFAULT_SANDBOX, place.project, place)
  assert.equal(verdict.kind, 'grant')
  assert.deepEqual(verdict.grant, {
    engine: 'bubblewrap',
    image: null,
    network: false,
    writable: place.project,
    readable: [],
    hidden: [],
    home: place.home,
    max_memory_bytes: null,
    max_processes: null,
  })
})

test('a directory that is, holds or lies in a secret is refused, and so are the home, the root and what is the system’s', async (t) => {
  const place = await home(t)
  const cases: readonly [string, RegExp][] = [
    [place.home, /it is the home, where secrets lie; .*allow_home in \[tools\.exec\.sandbox\]/],
    [join(place.home, '.x0x'), /it lies in .*\.x0x, which holds secrets/],
    [join(place.home, '.ssh', 'keys'), /it lies in .*\.ssh, which holds secrets/],
    [join(place.home, '..'), /it holds the home/],
    ['/', /it belongs to the whole system/],
    ['/tmp', /it belongs to the whole system/],
    ['/etc/cron.d', /it is of the system's \/etc/],
    ['/usr/local/bin', /it is of the system's \/usr/],
    ['/run/user/1000', /it is of the system's \/run/],
    ['/proc/self/root', /it is of the system's \/proc/],
    ['project', /it is no absolute path/],
  ]
  for (const [cwd, reason] of cases) assert.match(reasonOf(cwd, place), reason, cwd)
})

test('a directory that holds a data directory is refused though it is no home', async (t) => {
  const place = await home(t)
  const secret = join(place.project, 'state', 'data')
  assert.match(reasonOf(place.project, { ...place, secrets: [...place.secrets, secret] }), /it holds .*state\/data, where secrets lie/)
})

test('a home is granted where the configuration says so, and its secrets are covered', async (t) => {
  const place = await home(t)
  const verdict = sandboxGrant({ ...DEFAULT_SANDBOX, allow_home: true }, place.home, place)
  assert.equal(verdict.kind, 'grant')
  assert.deepEqual(verdict.grant.hidden, place.secrets)
  assert.match(reasonOf('/', place, { ...DEFAULT_SANDBOX, allow_home: true }), /it belongs to the whole system/)
})

test('what the configuration shows besides is judged as well, by where its links lead', async (t) => {
  const place = await home(t)
  await symlink(join(place.home, '.ssh'), join(place.home, 'tools'))
  const shows = (path: string): string => reasonOf(place.project, place, { ...DEFAULT_SANDBOX, readable: [path] })
  assert.match(shows(join(place.home, 'tools')), /tools\.exec\.sandbox\.readable: .*\.ssh cannot be shown in a sandbox: it lies in/)
  assert.match(shows('/'), /the whole system/)
  assert.match(shows('/proc'), /it is of the system's \/proc/)
  assert.match(shows('/nowhere/at/all'), /it does not exist/)
  assert.equal(shows('/usr/share'), 'granted')
})

test('where HOME names another home, the secrets of both are none for a sandbox', async (t) => {
  const { home: other } = await home(t)
  const before = process.env['HOME']
  t.after(() => {
    if (before === undefined) delete process.env['HOME']
    else process.env['HOME'] = before
  })
  process.env['HOME'] = other
  const place = sandboxPlace()
  assert.equal(place.home, other)
  for (const one of [other, userInfo().homedir]) assert.match(reasonOf(join(one, '.ssh', 'keys'), place), /which holds secrets/)
})
