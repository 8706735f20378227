import assert from 'node:assert/strict'
import { mkdir, realpath, symlink } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { sandboxGrant, sandboxPath, type SandboxPath } from '../../../src/policy/sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX } from '../../../src/policy/sandbox/sandbox-settings.ts'
import { temporaryDirectory } from '../../support/processes.ts'

const home = async (t: TestContext): Promise<SandboxPath & { project: string }> => {
  const path = join(await realpath(await temporaryDirectory(t)), 'user')
  for (const name of ['.x0x', '.ssh', 'project']) await mkdir(join(path, name), { recursive: true })
  return { home: path, secrets: [join(path, '.x0x'), join(path, '.ssh')], project: join(path, 'project') }
}

const reasonOf = (cwd: string, place: SandboxPath, settings = DEFAULT_SANDBOX): string => {
  const verdict = sandboxGrant(settings, cwd, place)
  if (verdict.kind === 'grant') return 'granted'
  assert.equal(verdict.code, 'forbidden_path')
  return verdict.message
}

test('a sandbox may use a project directory below the home, without the rest of the home', async (t) => {
  const place = await home(t)
  const verdict = sandboxGrant(DEFAULT_SANDBOX, place.project, place)
  assert.equal(verdict.kind, 'grant')
  assert.deepEqual(verdict.grant, {
    engine: 'bubblewrap',
    image: null,
    network: false,
    unix_sockets: false,
    writable: place.project,
    readable: [],
    home: place.home,
    max_memory_bytes: null,
    max_processes: null,
  })
})

test('a directory that is, contains or is in a secret directory is refused, like homes, / and system directories', async (t) => {
  const place = await home(t)
  const cases: readonly [string, RegExp][] = [
    [place.home, /it is a home, where secrets and start-up files lie; use a project directory/],
    [join(place.home, '.x0x'), /it lies in .*\.x0x, which holds secrets/],
    [join(place.home, '.ssh', 'keys'), /it lies in .*\.ssh, which holds secrets/],
    [join(place.home, '..'), /it holds the home/],
    ['/', /it belongs to the whole system/],
    ['/tmp', /it belongs to the whole system/],
    ['/etc/cron.d', /it belongs to \/etc/],
    ['/usr/local/bin', /it belongs to \/usr/],
    ['/run/user/1000', /it belongs to \/run/],
    ['/proc/self/root', /it belongs to \/proc/],
    ['project', /it is not an absolute path/],
  ]
  for (const [cwd, reason] of cases) assert.match(reasonOf(cwd, place), reason, cwd)
})

test('a project that contains a data directory is refused', async (t) => {
  const place = await home(t)
  const secret = join(place.project, 'state', 'data')
  assert.match(reasonOf(place.project, { ...place, secrets: [...place.secrets, secret] }), /it holds .*state\/data, where secrets lie/)
})

test('a directory whose files run outside the sandbox is refused, such as programs, units and start-up files', async (t) => {
  const place = await home(t)
  const inside = [
    'bin',
    '.local/bin',
    '.local',
    '.config',
    '.config/autostart',
    '.config/systemd/user',
    '.config/environment.d',
    '.config/fish',
  ]
  for (const name of [...inside, '.local/share/project', '.bashrc.d', '.zsh', 'Library/LaunchAgents'])
    assert.match(reasonOf(join(place.home, name), place), /it lies in .*, where programs and settings lie that run outside/, name)
  for (const name of ['/var/spool/cron/crontabs', '/var/spool/at'])
    assert.match(reasonOf(name, place), /it belongs to .* of the system/, name)
  for (const name of ['project/.config', 'project/bin', 'project/.git', 'binaries'])
    assert.equal(reasonOf(join(place.home, name), place), 'granted', name)
})

test('a directory is refused if a link of a start-up place leads into it, even to a missing file', async (t) => {
  const links: readonly [link: string, target: string][] = [
    ['.bashrc', 'project/bashrc'],
    ['.profile', '../user/project/shell/profile'],
    ['.config', 'project/config'],
    ['.config/fish', 'project/fish'],
    ['.config/autostart/app.desktop', 'project/app.desktop'],
    ['.config/systemd/user', 'project/units'],
    ['.local/bin/git', 'project/tools/git'],
    ['bin', 'project'],
  ]
  for (const [link, target] of links) {
    const place = await home(t)
    await mkdir(dirname(join(place.home, link)), { recursive: true })
    await symlink(join(place.home, target), join(place.home, link))
    assert.match(reasonOf(place.project, place), /is a link to .*, where programs and settings lie that run outside/, link)
  }
  const place = await home(t)
  await symlink('elsewhere/file', join(place.project, '.bashrc'))
  await symlink(join(place.home, 'elsewhere'), join(place.home, 'data'))
  assert.equal(reasonOf(place.project, place), 'granted')
})

test('readable paths of the configuration are also checked, by the targets of their links', async (t) => {
  const place = await home(t)
  await symlink(join(place.home, '.ssh'), join(place.home, 'tools'))
  const shows = (path: string): string => reasonOf(place.project, place, { ...DEFAULT_SANDBOX, readable: [path] })
  assert.match(shows(join(place.home, 'tools')), /tools\.exec\.sandbox\.readable: .*\.ssh cannot be shown in a sandbox: it lies in/)
  assert.match(shows('/'), /the whole system/)
  assert.match(shows('/proc'), /it belongs to \/proc/)
  assert.match(shows('/nowhere/at/all'), /it does not exist/)
  assert.equal(shows('/usr/share'), 'granted')
})

test('if HOME names another home, the secrets of both homes stay hidden from a sandbox', async (t) => {
  const { home: other } = await home(t)
  const before = process.env['HOME']
  t.after(() => {
    if (before === undefined) delete process.env['HOME']
    else process.env['HOME'] = before
  })
  process.env['HOME'] = other
  const place = sandboxPath()
  assert.equal(place.home, other)
  for (const one of [other, userInfo().homedir]) assert.match(reasonOf(join(one, '.ssh', 'keys'), place), /which holds secrets/)
})
